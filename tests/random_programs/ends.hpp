#pragma once

/// The expected end of a program with a planted fault, derived from its plan.

#include "engine/device/communicator/fault.hpp"
#include "tests/random_programs/plan.hpp"

namespace shard::testing {

/// The exit codes of which the job must have one. The fault must happen: its device and its call exist.
std::vector<int> expected_codes(const Plan& plan, const Fault& fault);

}  // namespace shard::testing
