#pragma once

/// A test double of those functions of NVTX that cuda/ uses.

#include <string>
#include <vector>

int nvtxRangePushA(const char* name);
int nvtxRangePop();

namespace cuda_double {

/// For tests: the names of all ranges, in the order of their beginnings, each after two spaces for each range around it.
const std::vector<std::string>& ranges();

}  // namespace cuda_double
