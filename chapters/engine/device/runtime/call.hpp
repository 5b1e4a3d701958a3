#pragma once

/// The beginning of every collective. The devices tell each other in control messages what they call. So an
/// error can explain a mistake, and slices may differ in size.

#include <string>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/runtime/group.hpp"

namespace shard::runtime {

/// What a device says of its call.
struct Header {
  static constexpr Index no_call = -1;  ///< an exchange of numbers that is not a collective call
  static constexpr int most_axes = 32;

  Index collective = no_call;
  Index op = 0;
  Index axis = 0;
  Index concat_axis = 0;
  Index peer = -1;    ///< root or target; -1: none
  Index for_you = 0;  ///< a number that differs for each receiving device
  Shape shape;

  /// "all_gather of (2, 3) along axis 1".
  std::string describe(const Group& group) const;
};

/// Which extents may differ between devices.
struct MayDiffer {
  int axis;
  static MayDiffer nothing() { return {-1}; }
  static MayDiffer along(int axis) { return {axis}; }
  static MayDiffer all() { return {-2}; }
};

/// A collective call in progress, as its body sees it.
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

  /// Sends this device's header to all members and receives their headers: `co_await call.announce()`.
  Posts& announce();
  Posts& announce(const std::vector<Index>& for_each);
  /// \throws Error mismatch unless all members make the same call on shapes that fit.
  void require_agreement(MayDiffer difference);
  /// What a device said, once announcements are complete.
  const Header& said_by(int device) const { return theirs_[static_cast<std::size_t>(device)]; }

  Collective collective() const { return collective_; }
  /// Posts of one step: `co_await call.messages()` returns when they are complete.
  Posts& messages() { return posts_; }

 private:
  void read_announcements();

  std::shared_ptr<Group> group_;
  Collective collective_ = Collective::barrier;
  Header mine_;
  std::vector<Header> theirs_;
  std::vector<Index> outgoing_;  // my header as numbers, for one device after the other
  std::vector<Index> incoming_;  // each device's, at distances of the longest that there can be
  Posts posts_;
};

}  // namespace shard::runtime
