#include "engine/device/runtime/witness.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/device/runtime/watchdog/post_counts.hpp"

namespace shard::runtime {

namespace {

std::optional<Blocked::Dependencies> dependencies_of(const Call& call) {
  const Awaited* awaited = call.body.awaited();
  return awaited == nullptr ? Blocked::Dependencies{} : awaited->dependencies();
}

/// The dependencies of each call that may proceed.
std::vector<Blocked::Dependencies> in_flight(const Stream& stream) {
  std::vector<Blocked::Dependencies> all;
  auto add = [&](const Call& o) {
    if (auto dependencies = dependencies_of(o)) all.push_back(std::move(*dependencies));
  };
  if (!stream.queue().empty()) add(*stream.queue().front());
  for (const auto& posted : stream.posted())
    if (!posted->done) add(*posted);
  return all;
}

/// The call that this one waits for: the first of the stream, or itself if it is nonblocking or done. (A done call
/// waits only for this device's GPU.)
const Call& blocking_call(const Stream& stream, const Call& call) {
  return call.done || call.is_posted() || stream.queue().empty() ? call : *stream.queue().front();
}

Blocked blocked_by(const Stream& stream, const Call& call) {
  Blocked blocked;
  blocked.call = call.name;
  blocked.place = place_of_call(call.request.call, call.request.where, call.request.is_counted());
  blocked.in_flight = in_flight(stream);
  if (const std::optional<Blocked::Dependencies> dependencies = dependencies_of(call))
    blocked.any_of = {*dependencies};
  else
    blocked.any_of = blocked.in_flight;
  if (!is_message(call.request.function)) {
    blocked.group = call.group().id();
    blocked.members = call.group().members();
    blocked.call_of_group = call.group().counts().calls_begun();
  }
  return blocked;
}

}  // namespace

Blocked wait_for_call(const Stream& stream, const Call& call) {
  return blocked_by(stream, blocking_call(stream, call));
}

/// The device continues when any of the calls that it polls is done.
Blocked wait_for_polled(const Stream& stream) {
  Blocked all;
  std::size_t polled = 0;
  for (const auto& call : stream.polled()) {
    if (call->has_ended()) continue;
    if (polled++ == 0)
      all = wait_for_call(stream, *call);
    else if (auto dependencies = dependencies_of(blocking_call(stream, *call)))
      all.any_of.push_back(std::move(*dependencies));
    else
      all.any_of.insert(all.any_of.end(), all.in_flight.begin(), all.in_flight.end());
  }
  all.is_polling = true;
  if (polled > 1) all.place += fmt::format(", and {} more", polled - 1);
  return all;
}

/// The device continues when all calls in flight are done.
Blocked wait_for_all(const Stream& stream) {
  if (stream.queue().empty() && stream.posted().empty()) return {};
  Blocked blocked =
      blocked_by(stream, stream.queue().empty() ? *stream.posted().front() : *stream.queue().front());
  Blocked::Dependencies all;
  for (const auto& of_call : blocked.in_flight) all.insert(all.end(), of_call.begin(), of_call.end());
  blocked.any_of = {all};
  return blocked;
}

Blocked wait_outside(const Stream& stream, const std::string& what, std::string place,
                     Blocked::Dependencies dependencies) {
  Blocked blocked;
  blocked.call = what;
  blocked.place = std::move(place);
  blocked.any_of = {std::move(dependencies)};
  blocked.in_flight = in_flight(stream);
  return blocked;
}

DeviceState state_of_device(Blocked blocked) {
  return {std::move(blocked), PostCounts::of_all_groups(), stream().calls()};
}

}  // namespace shard::runtime
