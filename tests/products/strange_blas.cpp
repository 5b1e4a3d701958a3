/// A CBLAS that knows few processors, for tests of how kernels are chosen. It calls itself OpenBLAS, computes by plain
/// loops, and has no more kernels than names. STRANGE_KNOWS: the names that it takes from OPENBLAS_CORETYPE;
/// STRANGE_CHOOSES: the kernels of its own choice; STRANGE_WRONG: those whose products are wrong.

#include <cstdlib>
#include <string>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_among(const std::string& word, const char* list) {
  return !word.empty() && (' ' + variable(list) + ' ').find(' ' + word + ' ') != std::string::npos;
}

/// As in OpenBLAS, the variable is read when the library is loaded.
std::string chosen_kernels() {
  const std::string asked = variable("OPENBLAS_CORETYPE");
  return is_among(asked, "STRANGE_KNOWS") ? asked : variable("STRANGE_CHOOSES");
}
const std::string kernels = chosen_kernels();

}  // namespace

extern "C" {

const char* openblas_get_config() {
  return "OpenBLAS 9.9 DYNAMIC_ARCH";
}
const char* openblas_get_corename() {
  return kernels.c_str();
}

void cblas_sgemm(int, int order_a, int order_b, int m, int n, int k, float factor, const float* a, int lda,
                 const float* b, int ldb, float keep, float* c, int ldc) {
  constexpr int transposed = 112;
  const bool is_wrong = is_among(kernels, "STRANGE_WRONG");
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int l = 0; l < k; ++l)
        sum += a[order_a == transposed ? l * lda + i : i * lda + l] *
               b[order_b == transposed ? j * ldb + l : l * ldb + j];
      // What is wrong is the end of the last tile.
      if (is_wrong && i == m - 1 && j == n - 1 && m % 16 != 0) sum += 1;
      float& result = c[i * ldc + j];
      result = factor * sum + (keep == 0 ? 0 : keep * result);
    }
}
}
