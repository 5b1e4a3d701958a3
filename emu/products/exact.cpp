#include <algorithm>
#include <cstddef>
#include <vector>

#include "emu/products/library.hpp"

namespace shard::emu {

namespace {

/// Whole numbers from -4 to 4: sums of up to 2^20 products are exact in float32, in any order.
std::vector<float> whole_numbers(int count, unsigned seed) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& x : numbers) {
    seed = seed * 1664525U + 1013904223U;
    x = static_cast<float>((seed >> 16) % 9) - 4;
  }
  return numbers;
}

std::vector<float> transposed(const std::vector<float>& matrix, int rows, int columns) {
  std::vector<float> turned(matrix.size());
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      turned[static_cast<std::size_t>(j) * rows + i] = matrix[static_cast<std::size_t>(i) * columns + j];
  return turned;
}

/// c += a b, by plain loops.
void add_product(const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& c, int m,
                 int n, int k) {
  for (int i = 0; i < m; ++i)
    for (int l = 0; l < k; ++l) {
      const float factor = a[static_cast<std::size_t>(i) * k + l];
      const float* row = b.data() + static_cast<std::ptrdiff_t>(l) * n;
      float* sums = c.data() + static_cast<std::ptrdiff_t>(i) * n;
      for (int j = 0; j < n; ++j) sums[j] += factor * row[j];
    }
}

bool is_exact_in(const ProductLibrary& library, int m, int n, int k) {
  const std::vector<float> a = whole_numbers(m * k, 1), b = whole_numbers(k * n, 2),
                           c = whole_numbers(m * n, 3);
  const std::vector<float> a_turned = transposed(a, m, k), b_turned = transposed(b, k, n);
  std::vector<float> product(c.size()), sum = c;
  add_product(a, b, product, m, n, k);
  add_product(a, b, sum, m, n, k);
  for (const bool a_turns : {false, true})
    for (const bool b_turns : {false, true})
      for (const float keep : {0.0F, 1.0F}) {
        std::vector<float> result = c;
        library.multiply({a_turns, b_turns, m, n, k, (a_turns ? a_turned : a).data(), a_turns ? m : k,
                          (b_turns ? b_turned : b).data(), b_turns ? k : n, keep, result.data()});
        if (result != (keep == 0 ? product : sum)) return false;  // also if it is not a number
      }
  return true;
}

}  // namespace

bool is_exact(const ProductLibrary& library) {
  constexpr int shapes[][3] = {{1, 1, 1},     {1, 37, 65},  {5, 3, 7},    {17, 33, 29}, {49, 65, 97},
                               {13, 19, 515}, {7, 1031, 5}, {517, 11, 9}, {131, 67, 83}};
  return std::ranges::all_of(shapes,
                             [&](const int(&s)[3]) { return is_exact_in(library, s[0], s[1], s[2]); });
}

}  // namespace shard::emu
