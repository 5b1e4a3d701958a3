/// A wire in memory. A message is copied from the sender's memory to the receiver's when both calls are posted.

#include "engine/device/runtime/groups/wire.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

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
  Operation(int from, int tag) : from(from), tag(tag) {}
  int from, tag;
  std::span<const std::byte> sent;
  std::span<std::byte> received;
  std::vector<std::byte> buffered;  // what is sent, if its sender does not wait
  bool is_done = false;
  bool is_abandoned = false;  // a receive whose call has failed

  void buffer() { buffered.assign(sent.begin(), sent.end()), sent = buffered; }
};
using Operations = std::vector<std::shared_ptr<Operation>>;

/// The members' contributions to one collective.
struct Exchange {
  std::vector<std::vector<std::byte>> contributions;
  std::size_t arrived = 0, finished = 0;
};

/// The operations in progress of one group, shared by its members.
struct Queues {
  explicit Queues(std::size_t members) : sends(members), receives(members), collectives(members) {}
  std::vector<Operations> sends, receives;    // by receiver, in the order of posting
  std::map<std::size_t, Exchange> exchanges;  // by number
  std::vector<std::size_t> collectives;       // number begun, by member
};

/// The queues of all groups of this job, by id and members. The first member makes them; the messages of a member
/// that has left the group stay.
auto& all_queues() {
  static std::map<std::pair<Index, std::vector<int>>, std::shared_ptr<Queues>> all;
  static int job = 0;
  if (std::exchange(job, Scheduler::instance().job()) != Scheduler::instance().job()) all.clear();
  return all;
}
std::shared_ptr<Queues> queues_of(Index id, const std::vector<int>& members) {
  std::shared_ptr<Queues>& queues = all_queues()[{id, members}];
  if (queues == nullptr) queues = std::make_shared<Queues>(members.size());
  return queues;
}

/// Removes and returns the first operation with this member and tag, or null.
std::shared_ptr<Operation> match(Operations& unmatched, int from, int tag) {
  std::erase_if(unmatched, [](const auto& o) { return o->is_abandoned; });
  const auto found =
      std::ranges::find_if(unmatched, [&](const auto& o) { return o->from == from && o->tag == tag; });
  if (found == unmatched.end()) return nullptr;
  std::shared_ptr<Operation> operation = std::move(*found);
  operation->is_done = true;
  unmatched.erase(found);
  return operation;
}

void deliver(std::span<const std::byte> sent, std::span<std::byte> received) {
  if (sent.size() > received.size())
    throw Error(Code::internal, "a message in memory: expected one that fits, given a longer one");
  if (!sent.empty()) std::memcpy(received.data(), sent.data(), sent.size());
}

class MessageInMemory : public Transfer {
 public:
  MessageInMemory(std::shared_ptr<Operation> operation, bool is_receive)
      : operation_(std::move(operation)), is_receive_(is_receive) {}
  bool test() override { return operation_->is_done; }
  bool give_up() override {
    if (operation_->is_done) return false;
    if (is_receive_)
      operation_->is_abandoned = true;
    else
      operation_->buffer();
    return is_receive_;
  }

 private:
  std::shared_ptr<Operation> operation_;
  bool is_receive_;
};

class WireInMemory : public Wire {
 public:
  WireInMemory(Index id, std::vector<int> members)
      : id_(id), members_(std::move(members)), queues_(queues_of(id, members_)) {
    place_ = static_cast<int>(std::ranges::find(members_, this_device()) - members_.begin());
  }
  /// The last member removes the queues, unless they have messages.
  ~WireInMemory() override {
    if (queues_.use_count() == 2 && queues_->exchanges.empty() &&
        std::ranges::all_of(queues_->sends, &Operations::empty))
      all_queues().erase({id_, members_});
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

 private:
  Started send_bytes(int to, int tag, std::span<const std::byte> bytes, bool is_eager) {
    Scheduler::instance().note_progress();
    const auto receiver = static_cast<std::size_t>(to);
    if (const std::shared_ptr<Operation> other = match(queues_->receives[receiver], place_, tag))
      return deliver(bytes, other->received), wake(to), nullptr;
    auto mine = std::make_shared<Operation>(place_, tag);
    mine->sent = bytes;
    queues_->sends[receiver].push_back(mine);
    if (is_eager) return mine->buffer(), nullptr;
    return std::make_unique<MessageInMemory>(std::move(mine), false);
  }

  Started receive_bytes(int from, int tag, std::span<std::byte> bytes) {
    Scheduler::instance().note_progress();
    const auto me = static_cast<std::size_t>(place_);
    if (const std::shared_ptr<Operation> other = match(queues_->sends[me], from, tag))
      return deliver(other->sent, bytes), wake(from), nullptr;
    auto mine = std::make_shared<Operation>(from, tag);
    mine->received = bytes;
    queues_->receives[me].push_back(mine);
    return std::make_unique<MessageInMemory>(std::move(mine), true);
  }

  /// Begins the next collective. `finish` gets all members' contributions when all have begun it.
  template <class Finish>
  Started contribute(std::span<const std::byte> contribution, Finish finish);

  /// A member's operation can proceed.
  void wake(int place) { Scheduler::instance().wake(members_[static_cast<std::size_t>(place)]); }

  Index id_;
  std::vector<int> members_;
  std::shared_ptr<Queues> queues_;
  int place_ = 0;
};

/// A collective in progress.
template <class Finish>
class ExchangeInMemory : public Transfer {
 public:
  ExchangeInMemory(std::shared_ptr<Queues> queues, std::size_t number, Finish finish)
      : queues_(std::move(queues)), number_(number), finish_(std::move(finish)) {}
  bool test() override {
    if (is_done_) return true;
    Exchange& exchange = queues_->exchanges.at(number_);
    if (exchange.arrived < exchange.contributions.size()) return false;
    finish_(exchange.contributions);
    if (++exchange.finished == exchange.arrived) queues_->exchanges.erase(number_);
    return is_done_ = true;
  }
  bool give_up() override { return false; }

 private:
  std::shared_ptr<Queues> queues_;
  std::size_t number_;
  Finish finish_;
  bool is_done_ = false;
};

template <class Finish>
Started WireInMemory::contribute(std::span<const std::byte> contribution, Finish finish) {
  Scheduler::instance().note_progress();
  const std::size_t number = queues_->collectives[static_cast<std::size_t>(place_)]++;
  Exchange& exchange = queues_->exchanges[number];
  exchange.contributions.resize(members_.size());
  exchange.contributions[static_cast<std::size_t>(place_)].assign(contribution.begin(), contribution.end());
  if (++exchange.arrived == members_.size())
    for (int member : members_) Scheduler::instance().wake(member);
  return std::make_unique<ExchangeInMemory<Finish>>(queues_, number, std::move(finish));
}

void join(const std::vector<std::vector<std::byte>>& contributions, std::span<std::byte> all) {
  for (const auto& bytes : contributions) {
    std::ranges::copy(bytes, all.begin());
    all = all.subspan(bytes.size());
  }
}

Started WireInMemory::all_gather(std::span<const Index> mine, std::span<Index> all) {
  return contribute(std::as_bytes(mine), [all](const auto& of) { join(of, std::as_writable_bytes(all)); });
}

Started WireInMemory::all_to_all(std::span<const Index> for_each, std::span<Index> of_each) {
  return contribute(std::as_bytes(for_each),
                    [of_each, place = static_cast<std::size_t>(place_)](const auto& of) {
                      for (std::size_t m = 0; m < of.size(); ++m)
                        std::memcpy(&of_each[m], of[m].data() + place * sizeof(Index), sizeof(Index));
                    });
}

Started WireInMemory::gather(std::span<const char> mine, const std::vector<int>&, std::span<char> all,
                             bool for_all) {
  return contribute(std::as_bytes(mine), [all, wants = for_all || place_ == 0](const auto& of) {
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
  return std::make_unique<local::WireInMemory>(-device().part<Made>().wires++, std::move(members));
}
