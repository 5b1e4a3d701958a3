#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/device/runtime/agreement.hpp"

namespace shard::runtime {

/// A collective call in progress, as its body sees it. At the beginning of every collective the members tell
/// each other in control messages what they call. So an error can explain a mistake, and slices may differ in
/// size.
class Call {
 public:
  Call(std::shared_ptr<Group> group, Collective collective, Header mine);
  /// An exchange of numbers that is not a collective call.
  Call(std::shared_ptr<Group> group, Header mine) : group_(std::move(group)), mine_(std::move(mine)) {}

  Group& group() const { return *group_; }
  int me() const { return group_->device_id(); }
  int devices() const { return group_->num_devices(); }
  int right() const { return (me() + 1) % devices(); }
  int left() const { return (me() + devices() - 1) % devices(); }
  /// Any whole number as a place in the ring.
  int place(int k) const { return ((k % devices()) + devices()) % devices(); }

  /// Tells the other members what this device calls. What a body sends before it awaits the agreement, the
  /// others receive only if they make the same call. Each tells a `number` of its own beside, if there is one.
  void announce(MayDiffer difference, std::optional<Index> number = std::nullopt) {
    if (number) mine_.number = *number;
    agreement_.begin(*group_, std::move(mine_), difference);
  }
  /// `co_await call.agreement()` returns when all members are known to make this call on shapes that fit.
  /// \throws Error mismatch, on all members, if they do not.
  Agreement& agreement() { return agreement_; }
  const Agreement& agreement() const { return agreement_; }

  /// Sends number k to member k, and receives one from each: complete with the call's messages.
  void exchange_counts(const std::vector<Index>& for_each);
  /// What the others sent, by member, and this member's own.
  const std::vector<Index>& counts() const { return counts_; }

  /// Sends a shape to one member, and receives one from another: complete with the call's messages.
  void exchange_shapes(const Shape& shape, std::optional<int> to, std::optional<int> from);
  /// What that member sent.
  Shape received_shape() const;

  Collective collective() const { return collective_; }
  /// Posts of one step: `co_await call.messages()` returns when they are complete.
  Posts& messages() { return posts_; }

 private:
  std::shared_ptr<Group> group_;
  Collective collective_ = Collective::barrier;
  Header mine_;
  Agreement agreement_;
  std::vector<Index> sent_counts_, counts_;
  std::vector<Index> sent_shape_, received_shape_;
  Posts posts_;
};

/// The shape of what a broadcast's root sends, passed on along a binomial tree.
class RootShape : public Awaited {
 public:
  /// `root` is the root's place. `shape` is read on the root only. Begins at once.
  RootShape(Call& call, int root, const Shape& shape);
  bool test() override;
  std::optional<Blocked::Needs> needs() const override { return posts_.needs(); }
  /// Known on every member once it is complete.
  Shape shape() const;

 private:
  void pass_on();

  Group& group_;
  std::vector<int> children_;
  std::vector<Index> numbers_;
  bool has_passed_on_ = false;
  Posts posts_;
};

}  // namespace shard::runtime
