#include "engine/device/error.hpp"

#include <fmt/format.h>

#include "engine/device/device.hpp"

namespace shard {

Error::Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}

void refuse(Code code, std::string_view call, std::string_view expected, std::string_view given) {
  throw Error(
      code, fmt::format("device {}: {}: expected {}, given {}", world().device_id(), call, expected, given));
}

}  // namespace shard
