#pragma once

/// A library of matrix products that is loaded while the program runs: a CBLAS, or oneDNN.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "emu/products/processor.hpp"

namespace shard::emu {

/// c = a b + keep c by rows, where a is (m, k) and b (k, n); either may lie transposed. `row_length_a` and
/// `row_length_b`: of the matrix as it lies. A row of c has n elements.
struct MatrixProduct {
  bool a_is_transposed, b_is_transposed;
  int m, n, k;
  const float* a;
  int row_length_a;
  const float* b;
  int row_length_b;
  float keep;
  float* c;
};

/// A loaded library, which computes on one thread. It is unloaded with its last copy.
class ProductLibrary {
 public:
  /// Loads a file, by its path or by its name in the system's folders, with these kernels; empty: those that the
  /// library chooses. `apart`: also where the program has loaded the same file, and with its own variables.
  /// Nothing if there is no such file, or none with products.
  static std::optional<ProductLibrary> load(const std::string& file, const std::string& kernels = {},
                                            bool apart = false);
  /// The library that was loaded with the program, or that is linked into it, if there is one.
  static std::optional<ProductLibrary> present();

  void multiply(const MatrixProduct& product) const;
  /// "OpenBLAS 0.3.21"
  const std::string& name() const { return name_; }
  /// "SkylakeX"; empty: the library does not say it.
  const std::string& kernels() const { return kernels_; }
  /// "OpenBLAS 0.3.21, SkylakeX kernels"
  std::string text() const;
  /// Its kind, if it chooses kernels by the processor's model.
  std::optional<ByModel> by_model() const { return by_model_; }

 private:
  explicit ProductLibrary(std::shared_ptr<void> handle, const std::string& file);
  bool has_products() const { return cblas_ != nullptr || onednn_ != nullptr; }
  void* find(const char* function) const;
  void name_openblas();
  void name_blis();
  void name_onednn();
  void name_mkl();

  using Cblas = void(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*,
                     int);
  using OneDnn = int(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t,
                     const float*, std::int64_t, float, float*, std::int64_t);
  std::shared_ptr<void> handle_;
  std::string name_, kernels_;
  std::optional<ByModel> by_model_;
  Cblas* cblas_ = nullptr;
  OneDnn* onednn_ = nullptr;
};

/// The variable by which a user chooses the library's kernels.
const char* variable_of(ByModel library);

/// Whether products of whole numbers are exact: in shapes that divide no tile of kernels, with each operand
/// transposed or not. Some kernels are wrong on processors that are newer than they are.
bool is_exact(const ProductLibrary& library);

}  // namespace shard::emu
