#include "engine/device/error.hpp"

#include <fmt/format.h>

namespace shard {

namespace {

int id_in_job = 0;

}  // namespace

Error::Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}

int this_device() {
  return id_in_job;
}
void set_this_device(int id) {
  id_in_job = id;
}

void refuse(Code code, std::string_view call, std::string_view expected, std::string_view given) {
  throw Error(code,
              fmt::format("device {}: {}: expected {}, given {}", this_device(), call, expected, given));
}

}  // namespace shard
