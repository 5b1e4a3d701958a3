#include "tests/random_programs/execution.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <thread>

#include "tests/harness/devices.hpp"
#include "tests/random_programs/random.hpp"

namespace shard::testing {

namespace {

/// Computes for this number of microseconds, without a call to the device.
void compute(int microseconds) {
  volatile double sum = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  for (int i = 1; std::chrono::steady_clock::now() < end; ++i) sum = sum + std::sqrt(i);
}

/// What a program does beside its calls.
class Disturbance {
 public:
  Disturbance(const Plan& plan, int device)
      : random_({plan.seed, static_cast<std::uint64_t>(plan.program), static_cast<std::uint64_t>(device)}),
        is_slow_(plan.program % plan.devices == device) {}

  void before_an_action() {
    if (is_slow_) std::this_thread::sleep_for(std::chrono::microseconds(random_.below(300)));
    if (random_.one_in(2)) kept_.emplace_back(Shape{random_.between(1, 600)});
    if (!kept_.empty() && random_.one_in(2))
      kept_.erase(kept_.begin() + random_.below(static_cast<int>(kept_.size())));
  }

 private:
  Random random_;
  bool is_slow_;
  std::vector<Tensor> kept_;
};

class Execution {
 public:
  Execution(const Plan& plan, Communicator& world, const std::optional<Fault>& fault, bool is_disturbed)
      : plan_(plan), world_(world), fault_(fault), groups_(plan.groups.size()) {
    if (is_disturbed) disturbance_.emplace(plan, world.device_id());
  }
  ~Execution() {
    for (std::thread& worker : workers_) worker.join();
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  int run() {
    for (const Action& action : plan_.actions[static_cast<std::size_t>(world_.device_id())]) act(action);
    return wrong_;
  }

 private:
  /// A call that has not been waited for, with the memory that it needs.
  struct PendingCall {
    Future<Tensor> result;
    Future<> done;
    Tensor src, dst;
    bool has_result = true;

    bool ready() { return has_result ? result.ready() : done.ready(); }
    Tensor get() {
      if (has_result) return result.get();
      done.wait();
      return std::move(dst);
    }
  };

  const Item& item(int index) const { return plan_.items[static_cast<std::size_t>(index)]; }
  Communicator& group(int index) { return index == 0 ? world_ : *groups_[static_cast<std::size_t>(index)]; }

  void act(const Action& action) {
    if (disturbance_) disturbance_->before_an_action();
    switch (action.kind) {
      case Action::Kind::start:
        return start(action.item);
      case Action::Kind::poll:
        return poll(pending_.at(action.item), std::chrono::microseconds(action.amount));
      case Action::Kind::wait:
        return check(action.item, pending_.extract(action.item).mapped().get());
      case Action::Kind::synchronize:
        return world_.synchronize();
      case Action::Kind::pause:
        return std::this_thread::sleep_for(std::chrono::microseconds(action.amount));
      case Action::Kind::work:
        workers_.emplace_back(compute, action.amount);
    }
  }

  static void poll(PendingCall& call, std::chrono::microseconds most) {
    const auto end = std::chrono::steady_clock::now() + most;
    while (!call.ready() && std::chrono::steady_clock::now() < end) continue;
  }

  void start(int index) {
    const Item& i = item(index);
    if (is_counted(i)) announce_fault();
    Communicator& g = group(i.group);
    const HostTensor input = input_of(plan_, index, g.device_id());
    if (i.what == What::message) return start_message(index, g, input);
    if (is_blocking(i, false)) return check(index, result_of_blocking(i, g, input));
    pending_[index] = started(i, g, input);
  }

  void announce_fault() {
    if (!fault_ || fault_->device != world_.device_id() || ++calls_ != fault_->call) return;
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    std::fprintf(stderr, "fault at %.3f\n", now.count());
  }

  PendingCall started(const Item& i, Communicator& g, const HostTensor& input) {
    Tensor t = to_device(input);
    const auto place = static_cast<std::size_t>(g.device_id());
    switch (i.what) {
      case What::all_reduce:
        return {g.all_reduce_async(std::move(t), i.op), {}, {}, {}};
      case What::all_gather:
        return {g.all_gather_async(std::move(t), i.axis), {}, {}, {}};
      case What::all_gather_of_copy:
        return gather_of_copy(g, std::move(t), i.axis);
      case What::reduce_scatter:
        return {g.reduce_scatter_async(std::move(t), i.op, i.axis), {}, {}, {}};
      case What::all_to_all:
        return {g.all_to_all_async(std::move(t), i.axis, i.concat_axis), {}, {}, {}};
      case What::all_to_all_of_counts:
        return {g.all_to_all_async(std::move(t), i.counts[place], i.axis), {}, {}, {}};
      case What::broadcast:
        return {g.broadcast_async(std::move(t), i.root), {}, {}, {}};
      default:
        return sent_async(g, std::move(t), i.targets[place]);
    }
  }

  static PendingCall gather_of_copy(Communicator& g, Tensor t, int axis) {
    const Tensor& kept = t;
    Future<Tensor> result = g.all_gather_async(kept, axis);
    return {std::move(result), {}, std::move(t), {}};
  }

  static PendingCall sent_async(Communicator& g, Tensor t, Index target) {
    Tensor dst(t.shape());
    const std::optional<int> to = target < 0 ? std::nullopt : std::optional(static_cast<int>(target));
    Future<> done = g.send_async(t, dst, to);
    return {{}, std::move(done), std::move(t), std::move(dst), false};
  }

  Tensor result_of_blocking(const Item& i, Communicator& g, const HostTensor& input) {
    if (i.what == What::barrier) g.barrier();
    if (i.what == What::split) split(i, g);
    if (i.what != What::exchange && i.what != What::gather) return {};
    std::vector<float> numbers;
    const auto mine = static_cast<Index>(input.values[0]);
    if (i.what == What::exchange)
      for (Index number : g.exchange("a number", mine)) numbers.push_back(static_cast<float>(number));
    else
      for (const std::string& text : g.gather("a number as a text", std::to_string(mine)))
        numbers.push_back(std::stof(text));
    return Tensor::from_host({static_cast<Index>(numbers.size())}, numbers);
  }

  void split(const Item& i, Communicator& g) {
    const auto place = static_cast<std::size_t>(g.device_id());
    const Index color = i.colors[place];
    std::unique_ptr<Communicator> part =
        g.split(color < 0 ? std::nullopt : std::optional(color), i.keys[place]);
    const int index = i.parts[place];
    const std::vector<int> none;
    const std::vector<int>& members = index < 0 ? none : plan_.groups[static_cast<std::size_t>(index)];
    if ((part ? part->members() : none) != members) complain(describe(plan_, i), "a group of other members");
    if (index >= 0) groups_[static_cast<std::size_t>(index)] = std::move(part);
  }

  void start_message(int index, Communicator& g, const HostTensor& input) {
    const Item& i = item(index);
    if (g.device_id() == i.from) {
      Tensor t = to_device(input);
      if (!i.is_posted_send) return g.send(i.to, t);
      pending_[index] = {{}, g.post_send(i.to, std::move(t)), {}, {}, false};
    } else if (i.is_posted_receive) {
      pending_[index] = {g.post_receive(i.from, i.shapes[0]), {}, {}, {}};
    } else {
      check(index, g.receive(i.from));
    }
  }

  void check(int index, const Tensor& result) {
    const Item& i = item(index);
    const HostTensor expected =
        expected_result(plan_, index, group(i.group).device_id(), inputs_of(plan_, index));
    const std::string wrong = difference(result, expected);
    if (!wrong.empty()) complain(fmt::format("call {}, {}", index, describe(plan_, i)), wrong);
  }

  void complain(const std::string& call, const std::string& wrong) {
    ++wrong_;
    fmt::print("wrong: program {}, device {}, {}: {}\n", plan_.program, world_.device_id(), call, wrong);
    std::fflush(stdout);
  }

  const Plan& plan_;
  Communicator& world_;
  std::optional<Fault> fault_;
  std::optional<Disturbance> disturbance_;
  std::vector<std::unique_ptr<Communicator>> groups_;  // null: the world, or this device is no member
  std::map<int, PendingCall> pending_;                 // by item
  std::vector<std::thread> workers_;
  Index calls_ = 0;
  int wrong_ = 0;
};

}  // namespace

int execute(const Plan& plan, Communicator& world, const std::optional<Fault>& fault, bool is_disturbed) {
  return Execution(plan, world, fault, is_disturbed).run();
}

}  // namespace shard::testing
