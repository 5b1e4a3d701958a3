#include "engine/schedules/interpreter.hpp"

#include <set>

#include "engine/device/books/doing.hpp"

namespace shard {

using Kind = Action::Kind;

namespace {

/// The pass that an action belongs to: messages of activations are of the forward pass.
Phase phase_of(const Action& a) {
  const bool is_forward = a.is_work() ? a.kind == Kind::forward : a.flow == Flow::activation;
  return is_forward ? Phase::forward : Phase::backward;
}

}  // namespace

void Interpreter::act(const Action& a) {
  const Doing::Within within(phase_of(a), a.micro_batch, a.stage);
  if (a.kind == Kind::forward) forward(a.micro_batch, a.stage);
  if (a.kind == Kind::backward) backward(a.micro_batch, a.stage);
  if (a.kind == Kind::backward_input) backward_input(a.micro_batch, a.stage);
  if (a.kind == Kind::backward_weights) backward_weights(a.micro_batch, a.stage);
  if (a.kind == Kind::post_send) post_send(a.message());
  if (a.kind == Kind::post_receive) post_receive(a.message());
  if (a.kind == Kind::wait_sent) wait_sent(a.message());
  if (a.kind == Kind::wait_received) wait_received(a.message());
}

void Interpreter::backward(Index micro_batch, int stage) {
  backward_input(micro_batch, stage);
  backward_weights(micro_batch, stage);
}

void interpret(const Schedule& schedule, int device, Interpreter& interpreter) {
  for (const Action& a : schedule.of(device)) interpreter.act(a);
}

namespace {

/// The position of each device in its list of actions, and the posted messages.
class SideBySide {
 public:
  SideBySide(const Schedule& schedule, Sends sends)
      : schedule_(schedule), is_blocking_(sends == Sends::blocking), at_(schedule.actions.size()) {}

  /// The device's next action; null at the end.
  const Action* next(int device) const {
    const std::size_t at = at_[static_cast<std::size_t>(device)];
    return at < schedule_.of(device).size() ? &schedule_.of(device)[at] : nullptr;
  }
  /// The next action, if it need not wait; else null.
  const Action* ready(int device) const {
    const Action* a = next(device);
    return a && waits_for(*a) < 0 ? a : nullptr;
  }

  /// The device that an action waits for now, or -1.
  int waits_for(const Action& a) const {
    const Message m = a.message();
    if (a.kind == Kind::wait_received) return sent_.contains(m) ? -1 : schedule_.sender(m);
    if (a.kind == Kind::wait_sent && !is_blocking_) return awaited_.contains(m) ? -1 : schedule_.receiver(m);
    if (a.kind == Kind::post_send && is_blocking_) {
      const Action* of_receiver = next(schedule_.receiver(m));
      const bool is_met = of_receiver && *of_receiver == Action::on(Kind::wait_received, m);
      return is_met ? -1 : schedule_.receiver(m);
    }
    return -1;
  }

  void go_on(int device) {
    const Action& a = *next(device);
    if (a.kind == Kind::post_send) sent_.insert(a.message());
    if (a.kind == Kind::post_receive) awaited_.insert(a.message());
    ++at_[static_cast<std::size_t>(device)];
  }

 private:
  const Schedule& schedule_;
  bool is_blocking_;
  std::vector<std::size_t> at_;
  std::set<Message> sent_, awaited_;  // posted sends, and posted receives
};

}  // namespace

std::vector<Stuck> interpret_together(const Schedule& schedule, Sends sends,
                                      const std::vector<Interpreter*>& interpreters) {
  SideBySide devices(schedule, sends);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (int d = 0; d < schedule.devices; ++d)
      while (const Action* a = devices.ready(d)) {
        if (!interpreters.empty()) interpreters[static_cast<std::size_t>(d)]->act(*a);
        devices.go_on(d);
        goes_on = true;
      }
  }
  std::vector<Stuck> stuck;
  for (int d = 0; d < schedule.devices; ++d)
    if (const Action* a = devices.next(d)) stuck.push_back({d, *a, devices.waits_for(*a)});
  return stuck;
}

}  // namespace shard
