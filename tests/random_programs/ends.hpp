#pragma once

/// How a program must end in which a fault was planted, derived from the plan alone.

#include "engine/device/fault.hpp"
#include "tests/random_programs/plan.hpp"

namespace shard::testing {

/// The exit code that the job must end with. The fault is one that happens: there is such a device and such
/// a call.
int expected_code(const Plan& plan, const Fault& fault);

}  // namespace shard::testing
