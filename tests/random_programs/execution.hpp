#pragma once

/// Runs a plan on this device, and compares every result.

#include "engine/device/communicator/fault.hpp"
#include "tests/random_programs/plan.hpp"

namespace shard::testing {

/// Runs this device's part of the plan, prints a line for each wrong result, and returns their number. At the
/// call where `fault` happens on this device, prints the time: "fault at 1700000000.123". If it `is_disturbed`, tensors
/// are made and freed between calls and their waits, and one device is slower than the others.
int execute(const Plan& plan, Communicator& world, const std::optional<Fault>& fault, bool is_disturbed);

}  // namespace shard::testing
