#pragma once

#include <string>
#include <vector>

#include "emu/products/library.hpp"

namespace shard::emu {

/// What makes the products of this process; chosen at the first call. \throws Error missing where no library is
const ProductLibrary& product_library();
/// "OpenBLAS 0.3.21, SkylakeX kernels, on a processor with AVX-512 (it would have chosen Prescott)"
std::string about_products();
/// Libraries that may be installed, by their file names: the one that the build found, oneDNN, BLIS.
std::vector<std::string> known_libraries();
/// The library in this file with the best kernels for this processor that are exact, if there is one; with those
/// that it chooses where there are no better ones. `remark` gets what there is to say of that.
std::optional<ProductLibrary> with_best_kernels(const std::string& file, std::string& remark,
                                                bool apart = false);

}  // namespace shard::emu
