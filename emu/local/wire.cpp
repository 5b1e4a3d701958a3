/// A wire in memory. A message is copied once, from the sender's memory to the receiver's, when both are there.

#include "engine/device/runtime/wire.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>

#include "emu/local/turns.hpp"
#include "engine/device/error.hpp"

namespace shard::local {
namespace {

using runtime::Request;
using runtime::Started;
using runtime::Wire;

/// Up to so many bytes are kept for a receiver that has not come, and their sender goes on: as Open MPI does
/// between processes of one host.
constexpr std::size_t most_kept = 4096;

/// One end of a message.
struct End {
  std::span<const std::byte> sent;
  std::span<std::byte> received;
  std::vector<std::byte> kept;  // what is sent, where its sender has gone on
  bool is_done = false;
  bool is_left = false;  // by a receiver whose call has failed
};
using Ends = std::deque<std::shared_ptr<End>>;

/// What the members of a group bring to one collective.
struct Meeting {
  std::vector<std::vector<std::byte>> of_member;
  std::size_t arrived = 0, left = 0;
};

/// What the members of one group share.
struct Shared {
  explicit Shared(std::size_t members) : collectives(members) {}
  using Route = std::tuple<int, int, int>;  // from, to, tag
  std::map<Route, Ends> sends, receives;    // that have not met
  std::map<std::size_t, Meeting> meetings;  // by number
  std::vector<std::size_t> collectives;     // that each member has begun
};

/// By the job, the group's id and members: each member asks for it when it first needs it. One that has sent and
/// gone leaves its messages here.
std::shared_ptr<Shared> shared_by(Index id, const std::vector<int>& members) {
  static std::map<std::tuple<int, Index, std::vector<int>>, std::shared_ptr<Shared>> all;
  const int job = Turns::instance().job();
  std::erase_if(all, [job](const auto& entry) {
    const Shared& shared = *entry.second;
    const bool is_over = entry.second.use_count() == 1 && shared.sends.empty() && shared.meetings.empty();
    return is_over || std::get<0>(entry.first) != job;
  });
  std::shared_ptr<Shared>& shared = all[{job, id, members}];
  if (shared == nullptr) shared = std::make_shared<Shared>(members.size());
  return shared;
}

/// The first end that waits there, taken off; or null.
std::shared_ptr<End> take(std::map<Shared::Route, Ends>& ends, const Shared::Route& route) {
  const auto found = ends.find(route);
  if (found == ends.end()) return nullptr;
  std::shared_ptr<End> end;
  while (end == nullptr && !found->second.empty()) {
    if (!found->second.front()->is_left) end = found->second.front();
    found->second.pop_front();
  }
  if (found->second.empty()) ends.erase(found);
  return end;
}

void deliver(const End& from, const End& to) {
  if (from.sent.size() > to.received.size())
    throw Error(Code::internal, "a message in memory: expected one that fits, given a longer one");
  std::ranges::copy(from.sent, to.received.begin());
}

class MessageInMemory : public Request {
 public:
  MessageInMemory(std::shared_ptr<End> end, bool is_receive)
      : end_(std::move(end)), is_receive_(is_receive) {}
  bool test() override { return end_->is_done; }
  bool give_up() override {
    if (end_->is_done) return false;
    if (is_receive_)
      end_->is_left = true;
    else
      end_->kept.assign(end_->sent.begin(), end_->sent.end()), end_->sent = end_->kept;
    return is_receive_;
  }

 private:
  std::shared_ptr<End> end_;
  bool is_receive_;
};

class WireInMemory : public Wire {
 public:
  WireInMemory(Index id, std::vector<int> members)
      : members_(std::move(members)), shared_(shared_by(id, members_)) {
    place_ = static_cast<int>(std::ranges::find(members_, this_device()) - members_.begin());
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
    const Shared::Route route(place_, to, tag);
    auto mine = std::make_shared<End>();
    mine->sent = bytes;
    if (const std::shared_ptr<End> other = take(shared_->receives, route)) {
      deliver(*mine, *other);
      mine->is_done = other->is_done = true;
    } else {
      if (may_go_on) mine->kept.assign(bytes.begin(), bytes.end()), mine->sent = mine->kept;
      mine->is_done = may_go_on;
      shared_->sends[route].push_back(mine);
    }
    return std::make_unique<MessageInMemory>(std::move(mine), false);
  }

  Started receive_bytes(int from, int tag, std::span<std::byte> bytes) {
    Turns::instance().note_move();
    const Shared::Route route(from, place_, tag);
    auto mine = std::make_shared<End>();
    mine->received = bytes;
    if (const std::shared_ptr<End> other = take(shared_->sends, route)) {
      deliver(*other, *mine);
      mine->is_done = other->is_done = true;
    } else {
      shared_->receives[route].push_back(mine);
    }
    return std::make_unique<MessageInMemory>(std::move(mine), true);
  }

  /// Begins the next collective, with what this member brings. When all have come, `finish` takes what it needs.
  template <class Finish>
  Started meet(std::span<const std::byte> brings, Finish finish);

  std::vector<int> members_;
  std::shared_ptr<Shared> shared_;
  int place_ = 0;
};

/// A collective of which the members bring bytes.
template <class Finish>
class Gathering : public Request {
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
  ++meeting.arrived;
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
