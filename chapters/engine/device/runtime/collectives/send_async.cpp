/// send_async: each member may have a target, whose tensor it fills.

#include <fmt/format.h>

#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

std::optional<int> source_of(const Call& call) {
  std::optional<int> source;
  for (int d = 0; d < call.devices(); ++d) {
    const Index target = call.agreement().number_of(d);
    for (int e = 0; e < d; ++e)
      if (target >= 0 && call.agreement().number_of(e) == target)
        refuse(Code::mismatch, "send_async" + call.group().in_group(), "distinct targets",
               fmt::format("device {} as the target of both {} and {}",
                           call.group().member(static_cast<int>(target)), call.group().member(e),
                           call.group().member(d)));
    if (target == call.me()) source = d;
  }
  return source;
}

void require_same_shape(const Call& call, int source, const Shape& dst) {
  if (call.received_shape() != dst)
    refuse(Code::mismatch, "send_async" + call.group().in_group(),
           fmt::format("{} as my dst", to_string(dst)),
           fmt::format("{} from device {}", to_string(call.received_shape()), call.group().member(source)));
}

const Definition rows::send_async = {
    .name = "send_async",
    .prepare = [](Call& call) { call.request.number = call.request.peer.value_or(-1); },
    .body = runtime::send_async,
    .sent =
        [](const Call& call) {
          const bool is_sent = call.request.peer && call.peer() != call.me();
          return is_sent ? message_of(call.tensor) : Traffic{};
        },
};

}  // namespace shard::runtime
