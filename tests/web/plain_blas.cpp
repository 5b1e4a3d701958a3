/// The product of a web page as a CBLAS, for SHARDBOOK_PRODUCTS: programs of this machine then have the page's bits.

#include "emu/web/plain_product.hpp"

extern "C" void cblas_sgemm(int /*by rows*/, int a_lies, int b_lies, int m, int n, int k, float /*is 1*/,
                            const float* a, int row_length_a, const float* b, int row_length_b, float keep,
                            float* c, int /*is n*/) {
  constexpr int transposed = 112;  // CblasTrans
  shard::emu::multiply_plainly(
      {a_lies == transposed, b_lies == transposed, m, n, k, a, row_length_a, b, row_length_b, keep, c});
}
