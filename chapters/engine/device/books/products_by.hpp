#pragma once

#include <string>

namespace shard {

/// What makes this device's matrix products: "OpenBLAS 0.3.21, SkylakeX kernels, on a processor with AVX-512". It loads
/// the library, if none is loaded yet. \throws Error missing where there is none
std::string products_by();

}  // namespace shard
