#include "engine/device/fault.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <thread>

namespace shard {

namespace {

constexpr std::array<std::string_view, 7> kinds = {"kill",  "exit", "throw",  "stop",
                                                   "delay", "skip", "corrupt"};

/// The time in which the other devices come to what they wait in. Afterwards they are ended at once.
void let_others_wait() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

/// Takes "NAME=NUMBER," off the text's beginning.
template <class Number>
bool take_number(std::string_view& text, std::string_view name, Number& number) {
  if (!text.starts_with(name)) return false;
  const char* begin = text.data() + name.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ',') return false;
  text.remove_prefix(static_cast<std::size_t>(end + 1 - text.data()));
  return true;
}

/// A call that was left out: it is done, and its result is its argument.
class LeftOut : public Pending {
 public:
  explicit LeftOut(Tensor given) : given_(std::move(given)) {}
  bool test() override { return true; }
  void wait() override {}
  Tensor take_result() override { return std::move(given_); }
  void dropped() noexcept override {}

 private:
  Tensor given_;
};

Tensor corrupted(const Tensor& t) {
  std::vector<float> values = t.to_host();
  if (!values.empty()) values[0] += 1.0F;
  return Tensor::from_host(t.shape(), values);
}

}  // namespace

Future<Tensor> left_out(Tensor&& given) {
  return {std::make_shared<LeftOut>(std::move(given)), [](Tensor t) { return t; }};
}

/// A part of a faulty group, which owns what it passes calls on to.
class FaultyPart : public FaultyCommunicator {
 public:
  FaultyPart(std::unique_ptr<Communicator> part, const FaultyCommunicator& whole)
      : FaultyCommunicator(*part, whole.fault_, whole.calls_), part_(std::move(part)) {}

 private:
  std::unique_ptr<Communicator> part_;
};

std::optional<Fault> fault_from(const std::string& text) {
  Fault fault;
  std::string_view rest = text;
  if (!take_number(rest, "device=", fault.device) || !take_number(rest, "call=", fault.call)) return {};
  if (fault.device < 0 || fault.call < 1 || !rest.starts_with("kind=")) return {};
  const auto kind = std::find(kinds.begin(), kinds.end(), rest.substr(5));
  if (kind == kinds.end()) return {};
  fault.kind = static_cast<Fault::Kind>(kind - kinds.begin());
  return fault;
}

bool FaultyCommunicator::is_now() const {
  return *calls_ == fault_.call && this_device() == fault_.device;
}

bool FaultyCommunicator::corrupts_now() const {
  return is_now() && fault_.kind == Fault::Kind::corrupt;
}

bool FaultyCommunicator::is_left_out() {
  ++*calls_;
  if (!is_now()) return false;
  switch (fault_.kind) {
    case Fault::Kind::kill:
      let_others_wait();
      std::raise(SIGKILL);
      break;
    case Fault::Kind::exit:
      let_others_wait();
      _exit(0);
    case Fault::Kind::raise:
      throw Error(Code::internal, fmt::format("device {}: the planted fault of --fault", this_device()));
    case Fault::Kind::stop:
      std::raise(SIGSTOP);
      break;
    case Fault::Kind::delay:
      std::this_thread::sleep_for(std::chrono::seconds(1));
      break;
    default:
      break;
  }
  return fault_.kind == Fault::Kind::skip;
}

Tensor FaultyCommunicator::passed(Tensor&& t) const {
  return corrupts_now() ? corrupted(t) : std::move(t);
}

void FaultyCommunicator::do_barrier() {
  if (!is_left_out()) inner().barrier();
}
void FaultyCommunicator::do_send(int to, const Tensor& t) {
  if (!is_left_out()) inner().send(to, passed(t.clone()));
}
Tensor FaultyCommunicator::do_receive(int from) {
  return is_left_out() ? Tensor() : passed(inner().receive(from));
}
Future<> FaultyCommunicator::do_post_send(int to, Tensor&& t) {
  if (is_left_out()) return {};
  return inner().post_send(to, passed(std::move(t)));
}
Future<Tensor> FaultyCommunicator::do_post_receive(int from, const Shape& shape) {
  if (is_left_out()) return left_out(Tensor(shape));
  const bool corrupts = corrupts_now();
  return inner().post_receive(from, shape).then([corrupts](Tensor t) {
    return corrupts ? corrupted(t) : std::move(t);
  });
}
Future<> FaultyCommunicator::do_send_async(const Tensor& src, Tensor& dst, std::optional<int> target) {
  if (is_left_out()) return {};
  if (!corrupts_now()) return inner().send_async(src, dst, target);
  const Tensor wrong = corrupted(src);
  inner().send_async(wrong, dst, target).wait();
  return {};
}
Future<Tensor> FaultyCommunicator::do_all_gather(Tensor&& t, int axis, const std::optional<Shape>& whole) {
  if (is_left_out()) return left_out(std::move(t));
  return inner().all_gather_async(passed(std::move(t)), axis, whole);
}
Future<Tensor> FaultyCommunicator::do_all_gather(const Tensor& t, int axis,
                                                 const std::optional<Shape>& whole) {
  if (is_left_out()) return left_out(t.clone());
  if (corrupts_now()) return inner().all_gather_async(corrupted(t), axis, whole);
  return inner().all_gather_async(t, axis, whole);
}
Future<Tensor> FaultyCommunicator::do_all_reduce(Tensor&& t, ReduceOp op) {
  if (is_left_out()) return left_out(std::move(t));
  return inner().all_reduce_async(passed(std::move(t)), op);
}
Future<Tensor> FaultyCommunicator::do_reduce_scatter(Tensor&& t, ReduceOp op, int axis) {
  if (is_left_out()) return left_out(std::move(t));
  return inner().reduce_scatter_async(passed(std::move(t)), op, axis);
}
Future<Tensor> FaultyCommunicator::do_all_to_all(Tensor&& t, int split_axis, int concat_axis) {
  if (is_left_out()) return left_out(std::move(t));
  return inner().all_to_all_async(passed(std::move(t)), split_axis, concat_axis);
}
Future<Tensor> FaultyCommunicator::do_all_to_all(Tensor&& t, const std::vector<Index>& counts, int axis) {
  if (is_left_out()) return left_out(std::move(t));
  return inner().all_to_all_async(passed(std::move(t)), counts, axis);
}
Future<Tensor> FaultyCommunicator::do_broadcast(Tensor&& t, int root) {
  if (is_left_out()) return left_out(std::move(t));
  return inner().broadcast_async(passed(std::move(t)), root);
}

std::unique_ptr<Communicator> FaultyCommunicator::wrap(std::unique_ptr<Communicator> part) {
  return std::make_unique<FaultyPart>(std::move(part), *this);
}

}  // namespace shard
