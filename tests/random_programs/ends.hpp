#pragma once

/// The expected end of a program with a planted fault, derived from its plan.

#include "engine/device/communicator/fault.hpp"
#include "tests/random_programs/plan.hpp"

namespace shard::testing {

/// The exit code of the job. The fault must happen: its device and its call exist.
int expected_code(const Plan& plan, const Fault& fault);

}  // namespace shard::testing
