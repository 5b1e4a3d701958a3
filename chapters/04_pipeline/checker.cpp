#include "checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/error.hpp"

namespace shard {

namespace {

using Kind = Action::Kind;
using Place = std::size_t;  // in a device's list of actions

/// Where each message is posted and waited for.
struct Route {
  Place send = 0, send_wait = 0, receive = 0, receive_wait = 0;
};

/// Runs all devices side by side, each as far as it can.
class Rehearsal {
 public:
  Rehearsal(const Schedule& schedule, Sends sends)
      : schedule_(schedule), sends_(sends), at_(schedule.actions.size()) {
    for (int d = 0; d < schedule_.devices; ++d) {
      const std::vector<Action>& actions = of(d);
      for (Place i = 0; i < actions.size(); ++i) {
        if (actions[i].is_work()) continue;
        Route& route = routes_[actions[i].message()];
        const bool is_sender = schedule_.sender(actions[i].message()) == d;
        if (actions[i].kind == Kind::post_send) route.send = i;
        if (actions[i].kind == Kind::post_receive) route.receive = i;
        if (actions[i].kind == Kind::wait) (is_sender ? route.send_wait : route.receive_wait) = i;
      }
    }
  }

  void run() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int d = 0; d < schedule_.devices; ++d)
        for (; !is_done(d) && waits_for(d) < 0; ++at_[static_cast<std::size_t>(d)]) goes_on = true;
    }
  }

  bool is_done(int d) const { return at(d) == of(d).size(); }
  /// What stops a device that is not done.
  Stuck stuck(int d) const { return {d, of(d)[at(d)], waits_for(d)}; }

 private:
  const std::vector<Action>& of(int d) const { return schedule_.actions[static_cast<std::size_t>(d)]; }
  Place at(int d) const { return at_[static_cast<std::size_t>(d)]; }

  /// The device that the next action waits for; -1: none.
  int waits_for(int d) const {
    const Action& a = of(d)[at(d)];
    if (a.is_work() || a.kind == Kind::post_receive) return -1;
    const int sender = schedule_.sender(a.message());
    const int receiver = schedule_.receiver(a.message());
    const Route& route = routes_.at(a.message());
    if (a.kind == Kind::wait && receiver == d) return at(sender) > route.send ? -1 : sender;
    const bool is_blocking = sends_ == Sends::blocking;
    if (is_blocking != (a.kind == Kind::post_send)) return -1;  // what is waited for elsewhere
    return at(receiver) >= (is_blocking ? route.receive_wait : route.receive + 1) ? -1 : receiver;
  }

  const Schedule& schedule_;
  Sends sends_;
  std::vector<Place> at_;
  std::map<Message, Route> routes_;
};

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

std::vector<Stuck> find_cycle(const Schedule& schedule, Sends sends) {
  Rehearsal rehearsal(schedule, sends);
  rehearsal.run();
  for (int d = 0; d < schedule.devices; ++d) {
    std::vector<Stuck> path;
    for (int at = d; !rehearsal.is_done(at); at = path.back().waits_for) {
      auto seen = std::ranges::find(path, at, &Stuck::device);
      if (seen != path.end()) return {seen, path.end()};
      path.push_back(rehearsal.stuck(at));
    }
    if (!path.empty()) return path;  // waits for a device that has come to its end
  }
  return {};
}

std::string to_string(const std::vector<Stuck>& cycle) {
  std::string text;
  for (const Stuck& s : cycle)
    text += fmt::format("{}device {} waits for device {} ({})", text.empty() ? "" : "; ", s.device,
                        s.waits_for, to_string(s.action));
  return text;
}

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

}  // namespace shard
