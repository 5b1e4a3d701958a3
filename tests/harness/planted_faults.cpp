#include "tests/harness/planted_faults.hpp"

#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "emu/messages.hpp"
#include "engine/device/communicator/fault.hpp"
#include "engine/device/this_device.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

namespace {

/// Counts calls, and leaves one out. Groups split from this one share the counter.
class FaultyCommunicator : public WrappedCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, std::optional<std::int64_t> leave_out)
      : WrappedCommunicator(inner), leave_out_(leave_out) {}
  FaultyCommunicator(std::unique_ptr<Communicator> part, const FaultyCommunicator& whole)
      : WrappedCommunicator(std::move(part)), leave_out_(whole.leave_out_), calls_(whole.calls_) {}

  using WrappedCommunicator::inner;
  std::int64_t calls() const { return *calls_; }

  Future<CallResult> call(Request&& request) override {
    const Request::Function function = request.function;
    if (!request.is_counted() || (*calls_)++ != leave_out_)
      return WrappedCommunicator::call(std::move(request));
    const bool is_sent = function == Request::send || function == Request::post_send;
    const bool arrives = function == Request::receive || function == Request::post_receive ||
                         (function == Request::broadcast && request.peer != device_id());
    if (is_sent) request.tensor = Tensor(request.tensor.shape());
    if (arrives)
      return inner().call(std::move(request)).then([](CallResult arrived) {
        return CallResult{Tensor(arrived.tensor.shape())};
      });
    const bool is_made = is_sent || function == Request::broadcast;
    return is_made ? inner().call(std::move(request)) : done(result_of_skipped(std::move(request)));
  }

 protected:
  /// A group of one device sends nothing, so leaving out its call is no mistake.
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override {
    if (part->num_devices() == 1) return part;
    return std::make_unique<FaultyCommunicator>(std::move(part), *this);
  }

 private:
  std::optional<std::int64_t> leave_out_;
  std::shared_ptr<std::int64_t> calls_ = std::make_shared<std::int64_t>();
};

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
  return device().state<Planted>();
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
