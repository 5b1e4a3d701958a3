#include "tests/harness/planted_faults.hpp"

#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "emu/message_filter.hpp"
#include "engine/device/fault.hpp"
#include "engine/device/this_device.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

namespace {

/// Counts calls, and leaves one out. Groups split from this one share the counter.
class FaultyCommunicator : public WrappedCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, std::optional<std::int64_t> leave_out,
                     std::shared_ptr<std::int64_t> calls = std::make_shared<std::int64_t>())
      : WrappedCommunicator(inner), leave_out_(leave_out), calls_(std::move(calls)) {}

  using WrappedCommunicator::inner;
  std::int64_t calls() const { return *calls_; }

 protected:
  void do_barrier() override {
    if (!is_next()) inner().barrier();
  }
  void do_send(int to, const Tensor& t) override {
    if (is_next())
      inner().send(to, Tensor(t.shape()));
    else
      inner().send(to, t);
  }
  Tensor do_receive(int from) override {
    const bool leave_out = is_next();
    Tensor t = inner().receive(from);
    return leave_out ? Tensor(t.shape()) : std::move(t);
  }
  Future<> do_post_send(int to, Tensor&& t) override {
    return inner().post_send(to, is_next() ? Tensor(t.shape()) : std::move(t));
  }
  Future<Tensor> do_post_receive(int from, const Shape& shape) override {
    const bool leave_out = is_next();
    return inner().post_receive(from, shape).then([=](Tensor t) {
      return leave_out ? Tensor(t.shape()) : std::move(t);
    });
  }
  Future<> do_send_async(const Tensor& src, Tensor& dst, std::optional<int> target) override {
    return is_next() ? Future<>() : inner().send_async(src, dst, target);
  }
  Future<Tensor> do_all_gather(Tensor&& t, int axis, const std::optional<Shape>& whole) override {
    return is_next() ? left_out(std::move(t)) : inner().all_gather_async(std::move(t), axis, whole);
  }
  Future<Tensor> do_all_gather(const Tensor& t, int axis, const std::optional<Shape>& whole) override {
    return is_next() ? left_out(t.clone()) : inner().all_gather_async(t, axis, whole);
  }
  Future<Tensor> do_all_reduce(Tensor&& t, ReduceOp op) override {
    return is_next() ? left_out(std::move(t)) : inner().all_reduce_async(std::move(t), op);
  }
  Future<Tensor> do_reduce_scatter(Tensor&& t, ReduceOp op, int axis) override {
    return is_next() ? left_out(std::move(t)) : inner().reduce_scatter_async(std::move(t), op, axis);
  }
  Future<Tensor> do_all_to_all(Tensor&& t, int split_axis, int concat_axis) override {
    return is_next() ? left_out(std::move(t))
                     : inner().all_to_all_async(std::move(t), split_axis, concat_axis);
  }
  Future<Tensor> do_all_to_all(Tensor&& t, const std::vector<Index>& counts, int axis) override {
    return is_next() ? left_out(std::move(t)) : inner().all_to_all_async(std::move(t), counts, axis);
  }
  Future<Tensor> do_broadcast(Tensor&& t, int root) override {
    const bool leave_out = is_next() && root != device_id();
    return inner().broadcast_async(std::move(t), root).then([=](Tensor whole) {
      return leave_out ? Tensor(whole.shape()) : std::move(whole);
    });
  }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override;

 private:
  /// Counts this call. Returns whether it is the one to leave out.
  bool is_next() { return (*calls_)++ == leave_out_; }

  std::optional<std::int64_t> leave_out_;
  std::shared_ptr<std::int64_t> calls_;
};

/// A part of the group. Owns the communicator that it wraps.
class FaultyPart : public FaultyCommunicator {
 public:
  FaultyPart(std::unique_ptr<Communicator> part, std::optional<std::int64_t> leave_out,
             std::shared_ptr<std::int64_t> calls)
      : FaultyCommunicator(*part, leave_out, std::move(calls)), part_(std::move(part)) {}

 private:
  std::unique_ptr<Communicator> part_;
};

/// A group of one device sends nothing, so leaving out its call is no mistake.
std::unique_ptr<Communicator> FaultyCommunicator::wrap(std::unique_ptr<Communicator> part) {
  if (part->num_devices() == 1) return part;
  return std::make_unique<FaultyPart>(std::move(part), leave_out_, calls_);
}

/// Counts messages, and corrupts one.
class CorruptingFilter : public emu::MessageFilter {
 public:
  CorruptingFilter(std::optional<std::int64_t> corrupt, bool all) : corrupt_(corrupt), all_(all) {}

  std::int64_t messages() const { return messages_; }
  std::span<const float> passed(std::span<const float> values) override {
    if (messages_++ != corrupt_) return values;
    corrupted_.emplace_back(values.begin(), values.end());
    std::vector<float>& wrong = corrupted_.back();
    if (!all_) wrong[0] += 1;
    for (std::size_t i = 0; i < wrong.size() && all_; ++i) wrong[i] += static_cast<float>(1000 * (1 + i % 3));
    return wrong;
  }

 private:
  std::optional<std::int64_t> corrupt_;
  bool all_;
  std::int64_t messages_ = 0;
  std::list<std::vector<float>> corrupted_;  // kept, since a message may still be in flight
};

/// The planted faults. Never destroyed: at the end of the program, the devices end before their groups could.
struct Planted {
  Communicator* real = nullptr;  // the group under test without faults
  /// A new group of the same devices. A fault may leave the devices of an old group in different calls. An
  /// engine may still use the group before.
  std::unique_ptr<Communicator> part, part_before;
  std::unique_ptr<FaultyCommunicator> communicator;
  /// Filters of earlier faults are kept, since a message of theirs may still be in flight.
  std::list<CorruptingFilter> filters;
};
Planted& planted() {
  return device().part<Planted>();
}

}  // namespace

void plant_faults(const Faults& faults) {
  Planted& p = planted();
  if (p.real == nullptr) p.real = &group().inner();
  p.part_before = std::exchange(p.part, p.real->split(0, p.real->device_id()));
  p.communicator = std::make_unique<FaultyCommunicator>(*p.part, faults.leave_out_call);
  group().set_inner(*p.communicator);
  const bool is_mine = faults.corrupting_device == p.real->device_id();
  p.filters.emplace_back(is_mine ? faults.corrupt_message : std::nullopt, faults.corrupts_all);
  emu::set_message_filter(&p.filters.back());
}

std::int64_t calls_made() {
  return planted().communicator == nullptr ? 0 : planted().communicator->calls();
}
std::int64_t messages_sent() {
  return planted().filters.empty() ? 0 : planted().filters.back().messages();
}

}  // namespace shard::testing
