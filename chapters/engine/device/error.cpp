#include "engine/device/error.hpp"

#include <fmt/format.h>

#include "engine/device/this_device.hpp"

namespace shard {

Error::Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}

int this_device() {
  return device().id;
}

std::string refusal_text(std::string_view call, std::string_view expected, std::string_view given) {
  const SourceLine where = current_call_site();
  const std::string place = where.is_known() ? ", at " + to_string(where) : "";
  return fmt::format("device {}: {}: expected {}, given {}{}", this_device(), call, expected, given, place);
}

void refuse(Code code, std::string_view call, std::string_view expected, std::string_view given) {
  throw Error(code, refusal_text(call, expected, given));
}

}  // namespace shard
