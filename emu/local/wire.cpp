/// A wire in memory. A message is copied once, from the sender's memory to the receiver's, when both are there.

#include "engine/device/runtime/groups/wire.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "emu/local/turns.hpp"
#include "engine/device/error.hpp"

namespace shard::local {
namespace {

using runtime::Started;
using runtime::Transfer;
using runtime::Wire;

/// The most bytes that are copied if the receiver has not come, so that the sender need not wait. Open MPI
/// does the same between processes of one host.
constexpr std::size_t most_kept = 4096;

/// One end of a message that has not met the other one.
struct End {
  End(int from, int tag) : from(from), tag(tag) {}
  int from, tag;
  std::span<const std::byte> sent;
  std::span<std::byte> received;
  std::vector<std::byte> kept;  // what is sent, where its sender has gone on
  bool is_done = false;
  bool is_left = false;  // by a receiver whose call has failed

  void keep() { kept.assign(sent.begin(), sent.end()), sent = kept; }
};
using Ends = std::vector<std::shared_ptr<End>>;

/// What the members of a group bring to one collective.
struct Meeting {
  std::vector<std::vector<std::byte>> of_member;
  std::size_t arrived = 0, left = 0;
};

/// What the members of one group share.
struct Shared {
  explicit Shared(std::size_t members) : sends(members), receives(members), collectives(members) {}
  std::vector<Ends> sends, receives;        // by receiver: those that have not met, the first ones first
  std::map<std::size_t, Meeting> meetings;  // by number
  std::vector<std::size_t> collectives;     // that each member has begun
};

/// Of the groups of this job, by id and members: each member asks for it when it first needs it. One that has
/// sent and gone leaves its messages here.
auto& all_shared() {
  static std::map<std::pair<Index, std::vector<int>>, std::shared_ptr<Shared>> all;
  static int job = 0;
  if (std::exchange(job, Turns::instance().job()) != Turns::instance().job()) all.clear();
  return all;
}
std::shared_ptr<Shared> shared_by(Index id, const std::vector<int>& members) {
  std::shared_ptr<Shared>& shared = all_shared()[{id, members}];
  if (shared == nullptr) shared = std::make_shared<Shared>(members.size());
  return shared;
}

/// The first one of these, taken off; or null.
std::shared_ptr<End> take(Ends& ends, int from, int tag) {
  std::erase_if(ends, [](const auto& end) { return end->is_left; });
  const auto found =
      std::ranges::find_if(ends, [&](const auto& end) { return end->from == from && end->tag == tag; });
  if (found == ends.end()) return nullptr;
  std::shared_ptr<End> end = std::move(*found);
  end->is_done = true;
  ends.erase(found);
  return end;
}

void deliver(std::span<const std::byte> sent, std::span<std::byte> received) {
  if (sent.size() > received.size())
    throw Error(Code::internal, "a message in memory: expected one that fits, given a longer one");
  if (!sent.empty()) std::memcpy(received.data(), sent.data(), sent.size());
}

class MessageInMemory : public Transfer {
 public:
  MessageInMemory(std::shared_ptr<End> end, bool is_receive)
      : end_(std::move(end)), is_receive_(is_receive) {}
  bool test() override { return end_->is_done; }
  bool give_up() override {
    if (end_->is_done) return false;
    if (is_receive_)
      end_->is_left = true;
    else
      end_->keep();
    return is_receive_;
  }

 private:
  std::shared_ptr<End> end_;
  bool is_receive_;
};

class WireInMemory : public Wire {
 public:
  WireInMemory(Index id, std::vector<int> members)
      : id_(id), members_(std::move(members)), shared_(shared_by(id, members_)) {
    place_ = static_cast<int>(std::ranges::find(members_, this_device()) - members_.begin());
  }
  /// The last one leaves nothing behind, unless there are messages.
  ~WireInMemory() override {
    if (shared_.use_count() == 2 && shared_->meetings.empty() &&
        std::ranges::all_of(shared_->sends, &Ends::empty))
      all_shared().erase({id_, members_});
  }
  int place() const override { return place_; }
  int size() const override { return static_cast<int>(members_.size()); }

  std::unique_ptr<Wire> part(Index id, const std::vector<int>& places) override {
    std::vector<int> members;
    for (int place : places) members.push_back(members_[static_cast<std::size_t>(place)]);
    return std::make_unique<WireInMemory>(id, std::move(members));
  }

  Started send(int to, int tag, std::span<const Index> numbers, bool synchronous) override {
    return send_bytes(to, tag, std::as_bytes(numbers), !synchronous);
  }
  Started send(int to, int tag, std::span<const float> values) override {
    return send_bytes(to, tag, std::as_bytes(values), values.size_bytes() <= most_kept);
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

 private:
  Started send_bytes(int to, int tag, std::span<const std::byte> bytes, bool may_go_on) {
    Turns::instance().note_move();
    const auto receiver = static_cast<std::size_t>(to);
    if (const std::shared_ptr<End> other = take(shared_->receives[receiver], place_, tag))
      return deliver(bytes, other->received), wake(to), nullptr;
    auto mine = std::make_shared<End>(place_, tag);
    mine->sent = bytes;
    shared_->sends[receiver].push_back(mine);
    if (may_go_on) return mine->keep(), nullptr;
    return std::make_unique<MessageInMemory>(std::move(mine), false);
  }

  Started receive_bytes(int from, int tag, std::span<std::byte> bytes) {
    Turns::instance().note_move();
    const auto me = static_cast<std::size_t>(place_);
    if (const std::shared_ptr<End> other = take(shared_->sends[me], from, tag))
      return deliver(other->sent, bytes), wake(from), nullptr;
    auto mine = std::make_shared<End>(from, tag);
    mine->received = bytes;
    shared_->receives[me].push_back(mine);
    return std::make_unique<MessageInMemory>(std::move(mine), true);
  }

  /// Begins the next collective, with what this member brings. When all have come, `finish` takes what it needs.
  template <class Finish>
  Started meet(std::span<const std::byte> brings, Finish finish);

  /// A member's operation can go on.
  void wake(int place) { Turns::instance().wake(members_[static_cast<std::size_t>(place)]); }

  Index id_;
  std::vector<int> members_;
  std::shared_ptr<Shared> shared_;
  int place_ = 0;
};

/// A collective of which the members bring bytes.
template <class Finish>
class Gathering : public Transfer {
 public:
  Gathering(std::shared_ptr<Shared> shared, std::size_t number, Finish finish)
      : shared_(std::move(shared)), number_(number), finish_(std::move(finish)) {}
  bool test() override {
    if (is_done_) return true;
    Meeting& meeting = shared_->meetings.at(number_);
    if (meeting.arrived < meeting.of_member.size()) return false;
    finish_(meeting.of_member);
    if (++meeting.left == meeting.arrived) shared_->meetings.erase(number_);
    return is_done_ = true;
  }
  bool give_up() override { return false; }

 private:
  std::shared_ptr<Shared> shared_;
  std::size_t number_;
  Finish finish_;
  bool is_done_ = false;
};

template <class Finish>
Started WireInMemory::meet(std::span<const std::byte> brings, Finish finish) {
  Turns::instance().note_move();
  const std::size_t number = shared_->collectives[static_cast<std::size_t>(place_)]++;
  Meeting& meeting = shared_->meetings[number];
  meeting.of_member.resize(members_.size());
  meeting.of_member[static_cast<std::size_t>(place_)].assign(brings.begin(), brings.end());
  if (++meeting.arrived == members_.size())
    for (int member : members_) Turns::instance().wake(member);
  return std::make_unique<Gathering<Finish>>(shared_, number, std::move(finish));
}

using OfMembers = std::vector<std::vector<std::byte>>;

void join(const OfMembers& of_member, std::span<std::byte> all) {
  for (const auto& bytes : of_member) {
    std::ranges::copy(bytes, all.begin());
    all = all.subspan(bytes.size());
  }
}

Started WireInMemory::all_gather(std::span<const Index> mine, std::span<Index> all) {
  return meet(std::as_bytes(mine), [all](const OfMembers& of) { join(of, std::as_writable_bytes(all)); });
}

Started WireInMemory::all_to_all(std::span<const Index> for_each, std::span<Index> of_each) {
  return meet(std::as_bytes(for_each),
              [of_each, place = static_cast<std::size_t>(place_)](const OfMembers& of) {
                for (std::size_t m = 0; m < of.size(); ++m)
                  std::memcpy(&of_each[m], of[m].data() + place * sizeof(Index), sizeof(Index));
              });
}

Started WireInMemory::gather(std::span<const char> mine, const std::vector<int>&, std::span<char> all,
                             bool for_all) {
  return meet(std::as_bytes(mine), [all, wants = for_all || place_ == 0](const OfMembers& of) {
    if (wants) join(of, std::as_writable_bytes(all));
  });
}

}  // namespace
}  // namespace shard::local

std::unique_ptr<shard::runtime::Wire> shard::runtime::wire_of_world() {
  std::vector<int> members(static_cast<std::size_t>(local::Turns::instance().devices()));
  for (std::size_t d = 0; d < members.size(); ++d) members[d] = static_cast<int>(d);
  struct Made {
    Index wires = 0;
  };
  return std::make_unique<local::WireInMemory>(-device().part<Made>().wires++, std::move(members));
}
