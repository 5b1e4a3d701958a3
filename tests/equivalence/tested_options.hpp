#pragma once

#include <vector>

#include "engine/program/registry.hpp"

namespace shard::testing {

/// The options with which tests run a variant on this number of devices; none if it does not run there. A variant on a
/// mesh is tested on every factorisation, and once with the axes in reverse order.
std::vector<Options> tested_options(const Variant& variant, int devices);

}  // namespace shard::testing
