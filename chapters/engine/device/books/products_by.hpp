#pragma once

#include <optional>
#include <string>

namespace shard {

/// What makes this device's matrix products: "OpenBLAS 0.3.21, SkylakeX kernels, on a processor with AVX-512". It loads
/// the library, if none is loaded yet. \throws Error missing where there is none
std::string products_by();

/// The most operations a second that this device's processor can do for products in the precision of now: both the sums and
/// the products count. Nothing where that is not known.
std::optional<double> peak_of_products();

}  // namespace shard
