#pragma once

#include <string>
#include <vector>

#include "emu/products/library.hpp"

namespace shard::emu {

/// Makes a product by the library of this process, which is chosen at the first call; a small one by another library where
/// that is quicker. \throws Error missing where no library is
void multiply(const MatrixProduct& product);
/// The libraries of this process: that of large products, and of small ones where it is another.
std::vector<ProductLibrary> product_libraries();
/// "OpenBLAS 0.3.21, SkylakeX kernels, on a processor with AVX-512 (it would have chosen Prescott)"
std::string about_products();
/// Libraries that may be installed, by their file names: the one that the build found, oneDNN, BLIS.
std::vector<std::string> known_libraries();
/// The library in this file with the best kernels for this processor that are exact, if there is one; with those
/// that it chooses where there are no better ones. `remark` gets what there is to say of that.
std::optional<ProductLibrary> with_best_kernels(const std::string& file, std::string& remark,
                                                bool apart = false);

}  // namespace shard::emu
