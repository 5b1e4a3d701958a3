#include "rehearsal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace shard::pipeline {

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

}  // namespace shard::pipeline
