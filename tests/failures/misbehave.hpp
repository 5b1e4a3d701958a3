#pragma once

/// What the cases of `misbehave` share, and its tables.

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>

#include "engine/device/device.hpp"
#include "tests/harness/cases.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace std::chrono_literals;
using testing::Case;
using testing::devices;
using testing::group;
using testing::left;
using testing::me;
using testing::right;
using testing::Where;

/// Devices that wait for one another, all of them or some.
extern const std::vector<Case> everybody_waits, some_wait_for_ever;
/// Programs that are slow or look suspicious, and must end without an error.
extern const std::vector<Case> nobody_is_wrong;

constexpr int line_of_all_reduce = __LINE__ + 2;
inline void all_reduce() {
  group().all_reduce_async(Tensor({5}), ReduceOp::sum).get();
}
inline void all_reduce_late() {
  std::this_thread::sleep_for(3s);
  all_reduce();
}
inline void poll_all_reduce() {
  Future<Tensor> future = group().all_reduce_async(Tensor({5}), ReduceOp::sum);
  while (!future.ready()) continue;
  future.get();
}
inline void nothing() {}

/// Device `culprit` does the first thing, the others the second.
template <class Wrong, class Meanwhile>
auto only(int culprit, Wrong wrong, Meanwhile meanwhile) {
  return [=] { me() == culprit ? wrong() : meanwhile(); };
}

/// A case on so many devices, which ends in this code.
inline Case ends_in(int code, const std::string& name, int devices, const std::vector<std::string>& says,
                    const testing::Body& body, Where where = Where::local_too) {
  return {name, {devices}, code, says, body, where};
}
/// A case in which device 1 of three does this, and the others reduce. `says` begins behind "error: device 1".
template <class Wrong>
Case of_1(int code, const std::string& name, std::vector<std::string> says, Wrong wrong,
          Where where = Where::local_too) {
  says[0] = "error: device 1" + says[0];
  return ends_in(code, "1_" + name, 3, says, only(1, wrong, all_reduce), where);
}

/// "call 1 at tests/failures/FILE:70", the call of that line.
inline std::string call_1_at(const char* file, int line) {
  return fmt::format("call 1 at tests/failures/{}:{}", file, line);
}
