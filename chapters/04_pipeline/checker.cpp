#include "checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/device/error.hpp"
#include "rehearsal.hpp"

namespace shard::pipeline {

namespace {

using Kind = Action::Kind;

[[noreturn]] void refuse_schedule(const std::string& expected, const std::string& given) {
  refuse(Code::internal, "schedule", expected, given);
}

/// How often each thing is done, in order, on a device.
class Bookkeeper {
 public:
  Bookkeeper(const Schedule& schedule, int device) : schedule_(schedule), device_(device) {}

  void note(const Action& a) {
    const int owner = a.is_work()                    ? schedule_.device_of(a.stage)
                      : a.kind == Kind::post_receive ? schedule_.receiver(a.message())
                      : a.kind == Kind::post_send    ? schedule_.sender(a.message())
                                                     : device_;
    if (owner != device_ || a.stage < 0 || a.stage >= schedule_.stages || a.micro_batch < 0 ||
        a.micro_batch >= schedule_.micro_batches)
      refuse_schedule("work and messages of this device's stages",
                      fmt::format("{} on device {}", to_string(a), device_));
    a.is_work() ? note_work(a) : note_message(a);
  }

  /// That all has been done that is this device's to do.
  void close() const {
    for (int s = device_; s < schedule_.stages; s += schedule_.devices)
      for (Index m = 0; m < schedule_.micro_batches; ++m)
        for (Kind kind : {Kind::forward, Kind::backward_input, Kind::backward_weights})
          if (!done_.contains({kind, {m, s}}))
            refuse_schedule("each action once", "none: " + to_string({kind, m, s}));
    if (!open_.empty())
      refuse_schedule("a wait for each message",
                      fmt::format("none for that of micro-batch {} for stage {}", open_.begin()->micro_batch,
                                  open_.begin()->stage));
  }

 private:
  void note_work(const Action& a) {
    auto is_done = [&](Kind kind) { return done_.contains({kind, {a.micro_batch, a.stage}}); };
    auto must = [&](bool condition, const char* expected) {
      if (!condition) refuse_schedule(expected, fmt::format("{} on device {}", to_string(a), device_));
    };
    if (a.kind == Kind::forward) {
      must(!is_done(Kind::forward), "one forward");
      must(has({Flow::activation, a.micro_batch, a.stage}), "its activation before it");
      done_.insert({Kind::forward, {a.micro_batch, a.stage}});
      return;
    }
    must(is_done(Kind::forward), "a forward before it");
    if (a.kind != Kind::backward_weights) {
      must(!is_done(Kind::backward_input), "one backward");
      must(has({Flow::gradient, a.micro_batch, a.stage}), "its gradient before it");
      done_.insert({Kind::backward_input, {a.micro_batch, a.stage}});
    }
    if (a.kind == Kind::backward_input) return;
    must(is_done(Kind::backward_input), "its other half before it");
    must(!is_done(Kind::backward_weights), "one backward for the weights");
    done_.insert({Kind::backward_weights, {a.micro_batch, a.stage}});
  }

  void note_message(const Action& a) {
    const bool is_mine = schedule_.sender(a.message()) == device_;
    auto must = [&](bool condition, const char* expected) {
      if (!condition) refuse_schedule(expected, fmt::format("{} on device {}", to_string(a), device_));
    };
    if (a.kind == Kind::wait) {
      must(open_.erase(a.message()) == 1, "a post before it, and one wait");
      if (!is_mine) arrived_.insert(a.message());
      return;
    }
    must(posted_.insert(a.message()).second, "one post");
    must(is_mine != (schedule_.receiver(a.message()) == device_), "a message to another device");
    if (a.kind == Kind::post_send) must(is_made(a.message()), "the work that makes it before it");
    open_.insert(a.message());
  }

  bool is_made(const Message& m) const {
    Kind by = m.flow == Flow::activation ? Kind::forward : Kind::backward_input;
    return done_.contains({by, {m.micro_batch, m.from_stage()}});
  }
  /// Whether a stage's work has what it reads.
  bool has(const Message& m) const {
    if (m.from_stage() < 0 || m.from_stage() >= schedule_.stages) return true;  // the model's input, the loss
    return schedule_.sender(m) == device_ ? is_made(m) : arrived_.contains(m);
  }

  const Schedule& schedule_;
  int device_;
  std::set<std::pair<Kind, std::pair<Index, int>>> done_;
  std::set<Message> posted_, open_, arrived_;
};

/// Messages in the order of their posts, by sender and receiver.
std::map<std::pair<int, int>, std::vector<Message>> posts(const Schedule& schedule, Kind kind) {
  std::map<std::pair<int, int>, std::vector<Message>> all;
  for (const std::vector<Action>& actions : schedule.actions)
    for (const Action& a : actions)
      if (a.kind == kind)
        all[{schedule.sender(a.message()), schedule.receiver(a.message())}].push_back(a.message());
  return all;
}

}  // namespace

void check(const Schedule& schedule) {
  for (int d = 0; d < schedule.devices; ++d) {
    Bookkeeper books(schedule, d);
    for (const Action& a : schedule.actions[static_cast<std::size_t>(d)]) books.note(a);
    books.close();
  }
  if (posts(schedule, Kind::post_send) != posts(schedule, Kind::post_receive))
    refuse_schedule("a receive for each send, in the same order between two devices", "another order");
  std::vector<Stuck> cycle = find_cycle(schedule, Sends::posted);
  if (!cycle.empty()) refuse_schedule("no cycle", to_string(cycle));
}

Index most_held(const Schedule& schedule, int device) {
  Index held = 0;
  Index most = 0;
  for (const Action& a : schedule.actions[static_cast<std::size_t>(device)]) {
    if (a.kind == Kind::forward) most = std::max(most, ++held);
    if (a.kind == Kind::backward || a.kind == Kind::backward_weights) --held;
  }
  return most;
}

}  // namespace shard::pipeline
