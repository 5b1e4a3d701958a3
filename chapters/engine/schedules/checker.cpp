#include "engine/schedules/checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/device/error.hpp"

namespace shard {

namespace {

using Kind = Action::Kind;

[[noreturn]] void refuse_schedule(const std::string& expected, const std::string& given) {
  refuse(Code::internal, "schedule", expected, given);
}

void require(bool condition, const char* expected, const Action& given, int device) {
  if (!condition) refuse_schedule(expected, fmt::format("{} on device {}", to_string(given), device));
}

/// Requires each action to belong to this device: work on its stages, and their messages.
void check_places(const Schedule& schedule, int device) {
  for (const Action& a : schedule.of(device)) {
    const bool is_send = a.kind == Kind::post_send || a.kind == Kind::wait_sent;
    const int owner = a.is_work() ? schedule.device_of(a.stage)
                      : is_send   ? schedule.sender(a.message())
                                  : schedule.receiver(a.message());
    const bool is_there = a.stage >= 0 && a.stage < schedule.stages && a.micro_batch >= 0 &&
                          a.micro_batch < schedule.micro_batches;
    require(owner == device && is_there, "work and messages of this device's stages", a, device);
  }
}

/// Records the actions of one device, and refuses one that comes too early or a second time.
class Bookkeeper : public Interpreter {
 public:
  Bookkeeper(const Schedule& schedule, int device) : schedule_(schedule), device_(device) {}

  /// Requires that no action of this device is missing, and no wait for a message.
  void close() const {
    for (int s = device_; s < schedule_.stages; s += schedule_.devices)
      for (Index m = 0; m < schedule_.micro_batches; ++m)
        for (Kind kind : {Kind::forward, Kind::backward_input, Kind::backward_weights})
          if (!done_.contains({kind, m, s}))
            refuse_schedule("each action once", "none: " + to_string({kind, m, s}));
    if (!open_.empty())
      refuse_schedule("a wait for each message",
                      fmt::format("none for that of micro-batch {} for stage {}", open_.begin()->micro_batch,
                                  open_.begin()->stage));
  }

 protected:
  void forward(Index m, int s) override {
    const Action a = {Kind::forward, m, s};
    must(has({Flow::activation, m, s}), "its activation before it", a);
    must(done_.insert(a).second, "one forward", a);
  }
  void backward_input(Index m, int s) override {
    const Action a = {Kind::backward_input, m, s};
    must(done_.contains({Kind::forward, m, s}), "a forward before it", a);
    must(has({Flow::gradient, m, s}), "its gradient before it", a);
    must(done_.insert(a).second, "one backward", a);
  }
  void backward_weights(Index m, int s) override {
    const Action a = {Kind::backward_weights, m, s};
    must(done_.contains({Kind::backward_input, m, s}), "its other half before it", a);
    must(done_.insert(a).second, "one backward for the weights", a);
  }
  void post_send(const Message& m) override {
    must(is_made(m), "the work that makes it before it", Action::on(Kind::post_send, m));
    post(m, Action::on(Kind::post_send, m));
  }
  void post_receive(const Message& m) override { post(m, Action::on(Kind::post_receive, m)); }
  void wait_sent(const Message& m) override { wait(m, Action::on(Kind::wait_sent, m)); }
  void wait_received(const Message& m) override {
    wait(m, Action::on(Kind::wait_received, m));
    arrived_.insert(m);
  }

 private:
  void must(bool condition, const char* expected, const Action& given) const {
    require(condition, expected, given, device_);
  }
  void post(const Message& m, const Action& a) {
    must(schedule_.sender(m) != schedule_.receiver(m), "a message to another device", a);
    must(posted_.insert(m).second, "one post", a);
    open_.insert(m);
  }
  void wait(const Message& m, const Action& a) {
    must(open_.erase(m) == 1, "a post before it, and one wait", a);
  }
  bool is_made(const Message& m) const {
    const Kind by = m.flow == Flow::activation ? Kind::forward : Kind::backward_input;
    return done_.contains({by, m.micro_batch, m.from_stage()});
  }
  /// Whether the message has arrived that a stage reads, or was made on this device.
  bool has(const Message& m) const {
    if (m.from_stage() < 0 || m.from_stage() >= schedule_.stages) return true;  // the model's input, the loss
    return schedule_.sender(m) == device_ ? is_made(m) : arrived_.contains(m);
  }

  const Schedule& schedule_;
  int device_;
  std::set<Action> done_;
  std::set<Message> posted_, open_, arrived_;
};

/// Counts the micro-batches whose activations are held.
class Holding : public Interpreter {
 public:
  Index held = 0, most = 0;

 protected:
  void forward(Index, int) override { most = std::max(most, ++held); }
  void backward_weights(Index, int) override { --held; }
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
    check_places(schedule, d);
    Bookkeeper books(schedule, d);
    interpret(schedule, d, books);
    books.close();
  }
  if (posts(schedule, Kind::post_send) != posts(schedule, Kind::post_receive))
    refuse_schedule("a receive for each send, in the same order between two devices", "another order");
  std::vector<Stuck> cycle = find_cycle(schedule, Sends::posted);
  if (!cycle.empty()) refuse_schedule("no cycle", to_string(cycle));
}

Schedule proved(Schedule schedule) {
  check(schedule);
  return schedule;
}

std::vector<Stuck> find_cycle(const Schedule& schedule, Sends sends) {
  const std::vector<Stuck> stuck = interpret_together(schedule, sends);
  std::vector<Stuck> path;
  for (auto at = stuck.begin(); at != stuck.end();) {
    auto seen = std::ranges::find(path, at->device, &Stuck::device);
    if (seen != path.end()) return {seen, path.end()};
    path.push_back(*at);
    at = std::ranges::find(stuck, at->waits_for, &Stuck::device);
  }
  return path;  // empty, or to a device that has ended
}

std::string to_string(const std::vector<Stuck>& cycle) {
  std::string text;
  for (const Stuck& s : cycle)
    text += fmt::format("{}device {} waits for device {} ({})", text.empty() ? "" : "; ", s.device,
                        s.waits_for, to_string(s.action));
  return text;
}

Index most_held(const Schedule& schedule, int device) {
  Holding holding;
  interpret(schedule, device, holding);
  return holding.most;
}

}  // namespace shard
