/// A wire in memory. A message is copied from the sender's memory to the receiver's when both calls are posted.

#include "engine/device/runtime/groups/wire.hpp"

#include <algorithm>
#include <any>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "emu/local/absence.hpp"
#include "emu/local/scheduler.hpp"
#include "engine/device/error.hpp"

namespace shard::local {
namespace {

using runtime::Started;
using runtime::Transfer;
using runtime::Wire;

/// Messages up to this size are buffered, so that the sender need not wait for the receiver. Open MPI has the same
/// limit between processes of one host.
constexpr std::size_t eager_limit = 4096;

/// A send or a receive without its counterpart.
struct Operation {
  int from = 0, tag = 0;
  std::span<const std::byte> sent;
  std::span<std::byte> received;
  bool* is_done = nullptr;          // of the member that waits for it
  std::vector<std::byte> buffered;  // what is sent, if its sender does not wait

  void buffer() { buffered.assign(sent.begin(), sent.end()), sent = buffered, is_done = nullptr; }
};
using Operations = std::list<Operation>;

/// The members' contributions to one collective.
struct Exchange {
  std::vector<std::vector<std::byte>> contributions;
  std::size_t expected = 0, arrived = 0, finished = 0;
};

/// The operations in progress of one group, shared by its members.
struct Queues {
  explicit Queues(std::size_t members) : sends(members), receives(members), begun(members) {}
  std::vector<Operations> sends, receives;  // by receiver, in the order of posting
  Operations spare;                         // those that have met: each keeps its memory for another one
  enum Kind { collective, agreement };
  std::map<std::pair<Kind, std::size_t>, Exchange> exchanges;  // by kind and number
  std::vector<std::map<Kind, std::size_t>> begun;              // number begun, by member and kind
};

/// The queues of all groups of this job, by id and members. The first member makes them; the messages of a member
/// that has left the group stay.
auto& all_queues() {
  using OfGroups = std::map<std::pair<Index, std::vector<int>>, std::shared_ptr<Queues>>;
  std::any& all = Scheduler::instance().shared_by_wires;
  if (!all.has_value()) all = OfGroups();
  return std::any_cast<OfGroups&>(all);
}
std::shared_ptr<Queues> queues_of(Index id, const std::vector<int>& members) {
  std::shared_ptr<Queues>& queues = all_queues()[{id, members}];
  if (queues == nullptr) queues = std::make_shared<Queues>(members.size());
  return queues;
}

void deliver(std::span<const std::byte> sent, std::span<std::byte> received) {
  if (sent.size() > received.size())
    throw Error(Code::internal, "a message in memory: expected one that fits, given a longer one");
  if (!sent.empty()) std::memcpy(received.data(), sent.data(), sent.size());
}

/// Adds an operation to its queue.
Operations::iterator added(Operations& queue, Operations& spare, int from, int tag) {
  if (spare.empty()) spare.emplace_back();
  queue.splice(queue.end(), spare, spare.begin());
  queue.back().from = from, queue.back().tag = tag;
  return std::prev(queue.end());
}

/// Removes the first operation with this member and tag. Returns it, until the next one is added, or null.
const Operation* match(Operations& queue, Operations& spare, int from, int tag) {
  const auto found =
      std::ranges::find_if(queue, [&](const auto& o) { return o.from == from && o.tag == tag; });
  if (found == queue.end()) return nullptr;
  if (found->is_done != nullptr) *found->is_done = true;
  spare.splice(spare.begin(), queue, found);
  return &*found;
}

class MessageInMemory : public Transfer {
 public:
  MessageInMemory(Operations& queue, Operations::iterator operation, bool is_receive)
      : queue_(queue), operation_(operation), is_receive_(is_receive) {
    operation->is_done = &is_done_;
  }
  bool test() override { return is_done_; }
  bool give_up() override {
    if (is_done_) return false;
    if (is_receive_)
      queue_.erase(operation_);
    else
      operation_->buffer();
    return is_receive_;
  }

 private:
  Operations& queue_;
  Operations::iterator operation_;
  bool is_receive_;
  bool is_done_ = false;
};

class WireInMemory : public Wire {
 public:
  WireInMemory(Index id, std::vector<int> members)
      : id_(id), members_(std::move(members)), queues_(queues_of(id, members_)) {
    place_ = place_of(this_device());
    for (int member : members_) num_present_ += absence_.devices.contains(member) ? 0 : 1;
  }
  /// The last member removes the queues, unless they have messages.
  ~WireInMemory() override {
    if (queues_.use_count() == 2 && queues_->exchanges.empty() &&
        std::ranges::all_of(queues_->sends, &Operations::empty))
      all_queues().erase({id_, members_});
  }
  int place() const override { return place_; }
  int size() const override { return static_cast<int>(members_.size()); }

  std::unique_ptr<Wire> subgroup(Index id, const std::vector<int>& places) override {
    std::vector<int> members;
    for (int place : places) members.push_back(members_[static_cast<std::size_t>(place)]);
    return std::make_unique<WireInMemory>(id, std::move(members));
  }

  Started send(int to, int tag, std::span<const Index> numbers, bool synchronous) override {
    return send_bytes(to, tag, std::as_bytes(numbers), !synchronous);
  }
  Started send(int to, int tag, std::span<const float> values) override {
    return send_bytes(to, tag, std::as_bytes(values), values.size_bytes() <= eager_limit);
  }
  Started receive(int from, int tag, std::span<Index> numbers) override {
    return receive_bytes(from, tag, std::as_writable_bytes(numbers));
  }
  Started receive(int from, int tag, std::span<float> values) override {
    return receive_bytes(from, tag, std::as_writable_bytes(values));
  }

  Started all_gather(std::span<const Index> mine, std::span<Index> all) override;
  Started all_to_all(std::span<const Index> for_each, std::span<Index> of_each) override;
  Started gather(std::span<const char> mine, const std::vector<int>& lengths, std::span<char> all,
                 bool for_all) override;

  bool is_absent(int place) const override {
    return absence_.devices.contains(members_[static_cast<std::size_t>(place)]);
  }
  void treats_members_differently() override {
    if (num_present_ < members_.size()) absence_.is_refuted = true;
  }
  Started agree(std::span<const Index> mine, std::span<Index> all, bool is_split) override;

 private:
  Started send_bytes(int to, int tag, std::span<const std::byte> bytes, bool is_eager) {
    require_present(to);
    scheduler_.note_progress();
    const auto receiver = static_cast<std::size_t>(to);
    if (const Operation* other = match(queues_->receives[receiver], queues_->spare, place_, tag))
      return deliver(bytes, other->received), wake(to), nullptr;
    Operations& queue = queues_->sends[receiver];
    const auto mine = added(queue, queues_->spare, place_, tag);
    mine->sent = bytes;
    if (is_eager) return mine->buffer(), nullptr;
    return std::make_unique<MessageInMemory>(queue, mine, false);
  }

  Started receive_bytes(int from, int tag, std::span<std::byte> bytes) {
    require_present(from);
    scheduler_.note_progress();
    const auto me = static_cast<std::size_t>(place_);
    if (const Operation* other = match(queues_->sends[me], queues_->spare, from, tag))
      return deliver(other->sent, bytes), wake(from), nullptr;
    Operations& queue = queues_->receives[me];
    const auto mine = added(queue, queues_->spare, from, tag);
    mine->received = bytes;
    return std::make_unique<MessageInMemory>(queue, mine, true);
  }

  /// Begins the next collective of this kind. `finish` gets all members' contributions when all have begun it.
  template <class Finish>
  Started contribute(Queues::Kind kind, std::span<const std::byte> contribution, Finish finish,
                     bool is_split = false);
  /// Makes the contributions of absent members: equal ones, or numbers that grow evenly.
  void fill_in(std::vector<std::vector<std::byte>>& contributions, bool is_split) const;
  /// \throws Error internal for an absent member
  void require_present(int place) const {
    if (num_present_ < members_.size() && is_absent(place))
      throw Error(Code::internal,
                  "a message: expected a device that runs, given one for which another stands");
  }

  int place_of(int device) const {
    return static_cast<int>(std::ranges::find(members_, device) - members_.begin());
  }
  /// A member's operation can proceed.
  void wake(int place) { scheduler_.wake(members_[static_cast<std::size_t>(place)]); }

  Index id_;
  std::vector<int> members_;
  std::shared_ptr<Queues> queues_;
  Scheduler& scheduler_ = Scheduler::instance();
  Absence& absence_ = scheduler_.absence();
  std::size_t num_present_ = 0;
  int place_ = 0;
};

/// A collective in progress.
template <class Finish>
class ExchangeInMemory : public Transfer {
 public:
  ExchangeInMemory(std::shared_ptr<Queues> queues, std::pair<Queues::Kind, std::size_t> number, Finish finish)
      : queues_(std::move(queues)), number_(number), finish_(std::move(finish)) {}
  bool test() override {
    if (is_done_) return true;
    Exchange& exchange = queues_->exchanges.at(number_);
    if (exchange.arrived < exchange.expected) return false;
    finish_(exchange.contributions);
    if (++exchange.finished == exchange.arrived) queues_->exchanges.erase(number_);
    return is_done_ = true;
  }
  bool give_up() override { return false; }

 private:
  std::shared_ptr<Queues> queues_;
  std::pair<Queues::Kind, std::size_t> number_;
  Finish finish_;
  bool is_done_ = false;
};

template <class Finish>
Started WireInMemory::contribute(Queues::Kind kind, std::span<const std::byte> contribution, Finish finish,
                                 bool is_split) {
  scheduler_.note_progress();
  const auto me = static_cast<std::size_t>(place_);
  const std::pair number(kind, queues_->begun[me][kind]++);
  Exchange& exchange = queues_->exchanges[number];
  exchange.expected = num_present_;
  exchange.contributions.resize(members_.size());
  exchange.contributions[me].assign(contribution.begin(), contribution.end());
  if (++exchange.arrived == num_present_) {
    fill_in(exchange.contributions, is_split);
    for (int m : members_) scheduler_.wake(m);
  }
  return std::make_unique<ExchangeInMemory<Finish>>(queues_, number, std::move(finish));
}

/// The number at this step, if numbers grow evenly from the first to the last. Nothing if it is not whole, and for
/// numbers that are no ids or keys, such as no color.
std::optional<Index> between(Index first, Index last, const Absence::Between& at) {
  constexpr Index most = Index{1} << 31;
  if (first == last) return first;
  if (std::min(first, last) < -most || std::max(first, last) > most) return std::nullopt;
  if ((last - first) * at.step % at.steps != 0) return std::nullopt;
  return first + (last - first) * at.step / at.steps;
}

void WireInMemory::fill_in(std::vector<std::vector<std::byte>>& contributions, bool is_split) const {
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const auto absent = absence_.devices.find(members_[m]);
    if (absent == absence_.devices.end()) continue;
    const auto first = static_cast<std::size_t>(place_of(absent->second.first));
    const auto last = static_cast<std::size_t>(place_of(absent->second.last));
    std::vector<std::byte>& mine = contributions[m];
    mine.resize(contributions[static_cast<std::size_t>(place_)].size());
    if (std::max(first, last) < members_.size() && contributions[first] == contributions[last])
      mine = contributions[first];
    else if (std::max(first, last) == members_.size() || !is_split)
      absence_.is_refuted = true;
    else
      for (std::size_t at = 0; at < mine.size(); at += sizeof(Index)) {
        Index a = 0, b = 0;
        std::memcpy(&a, &contributions[first][at], sizeof(Index));
        std::memcpy(&b, &contributions[last][at], sizeof(Index));
        const std::optional<Index> number = between(a, b, absent->second);
        absence_.is_refuted |= !number;
        if (number) a = *number;
        std::memcpy(&mine[at], &a, sizeof(Index));
      }
  }
}

void join(const std::vector<std::vector<std::byte>>& contributions, std::span<std::byte> all) {
  for (const auto& bytes : contributions) {
    deliver(bytes, all);
    all = all.subspan(bytes.size());
  }
}

Started WireInMemory::all_gather(std::span<const Index> mine, std::span<Index> all) {
  return contribute(Queues::collective, std::as_bytes(mine),
                    [all](const auto& of) { join(of, std::as_writable_bytes(all)); });
}

Started WireInMemory::agree(std::span<const Index> mine, std::span<Index> all, bool is_split) {
  if (size() == 1) return nullptr;
  return contribute(
      Queues::agreement, std::as_bytes(mine),
      [all](const auto& of) { join(of, std::as_writable_bytes(all)); }, is_split);
}

Started WireInMemory::all_to_all(std::span<const Index> for_each, std::span<Index> of_each) {
  return contribute(Queues::collective, std::as_bytes(for_each),
                    [of_each, place = static_cast<std::size_t>(place_)](const auto& of) {
                      for (std::size_t m = 0; m < of.size(); ++m)
                        std::memcpy(&of_each[m], of[m].data() + place * sizeof(Index), sizeof(Index));
                    });
}

Started WireInMemory::gather(std::span<const char> mine, const std::vector<int>&, std::span<char> all,
                             bool for_all) {
  return contribute(Queues::collective, std::as_bytes(mine),
                    [all, wants = for_all || place_ == 0](const auto& of) {
                      if (wants) join(of, std::as_writable_bytes(all));
                    });
}

}  // namespace
}  // namespace shard::local

std::unique_ptr<shard::runtime::Wire> shard::runtime::wire_of_world() {
  std::vector<int> members(static_cast<std::size_t>(local::Scheduler::instance().devices()));
  for (std::size_t d = 0; d < members.size(); ++d) members[d] = static_cast<int>(d);
  struct Made {
    Index wires = 0;
  };
  return std::make_unique<local::WireInMemory>(-device().state<Made>().wires++, std::move(members));
}
