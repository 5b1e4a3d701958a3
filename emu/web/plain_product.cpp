#include "emu/web/plain_product.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace shard::emu {

namespace {

/// C is made by tiles of 4 x 16 sums, which are 16 vectors of four numbers. Operands are copied so that a tile reads
/// them in order.
constexpr int tile_rows = 4, tile_columns = 16;

/// A matrix as it lies: element (row, column) of the operand.
struct Matrix {
  const float* data;
  std::ptrdiff_t row_length;
  bool is_transposed;
  float at(int row, int column) const {
    return is_transposed ? data[column * row_length + row] : data[row * row_length + column];
  }
};

/// Rows i to i + 4 of A (m, k) as (k, 4), with zeros beyond m.
void pack_rows(const Matrix& a, int k, int i, int m, float* to) {
  for (int p = 0; p < k; ++p)
    for (int y = 0; y < tile_rows; ++y) *to++ = i + y < m ? a.at(i + y, p) : 0;
}

/// Columns j to j + 16 of B (k, n) as (k, 16), with zeros beyond n.
void pack_columns(const Matrix& b, int k, int j, int n, float* to) {
  for (int p = 0; p < k; ++p)
    for (int x = 0; x < tile_columns; ++x) *to++ = j + x < n ? b.at(p, j + x) : 0;
}

typedef float Four __attribute__((vector_size(16)));

/// The sums (4, 16) of a (k, 4) and b (k, 16).
void add_up(const float* a, const float* b, int k, float* sums) {
  Four sum[tile_rows][tile_columns / 4] = {};
  for (int p = 0; p < k; ++p, a += tile_rows, b += tile_columns) {
    Four right[tile_columns / 4];
    std::memcpy(right, b, sizeof right);
    for (int y = 0; y < tile_rows; ++y) {
      const Four left = {a[y], a[y], a[y], a[y]};
      for (int x = 0; x < tile_columns / 4; ++x) sum[y][x] += left * right[x];
    }
  }
  std::memcpy(sums, sum, sizeof sum);
}

}  // namespace

void multiply_plainly(const MatrixProduct& p) {
  static std::vector<float> left, right;
  const Matrix a{p.a, p.row_length_a, p.a_is_transposed}, b{p.b, p.row_length_b, p.b_is_transposed};
  const std::size_t k = static_cast<std::size_t>(p.k), size = tile_rows * k;
  left.resize(static_cast<std::size_t>(p.m + tile_rows - 1) / tile_rows * size);
  right.resize(tile_columns * k);
  for (int i = 0; i < p.m; i += tile_rows)
    pack_rows(a, p.k, i, p.m, left.data() + static_cast<std::size_t>(i / tile_rows) * size);
  for (int j = 0; j < p.n; j += tile_columns) {
    pack_columns(b, p.k, j, p.n, right.data());
    for (int i = 0; i < p.m; i += tile_rows) {
      float sums[tile_rows][tile_columns];
      add_up(left.data() + static_cast<std::size_t>(i / tile_rows) * size, right.data(), p.k, &sums[0][0]);
      for (int y = 0; y < std::min(tile_rows, p.m - i); ++y)
        for (int x = 0; x < std::min(tile_columns, p.n - j); ++x) {
          float& c = p.c[static_cast<std::ptrdiff_t>(i + y) * p.n + j + x];
          c = p.keep == 0 ? sums[y][x] : sums[y][x] + p.keep * c;
        }
    }
  }
}

}  // namespace shard::emu
