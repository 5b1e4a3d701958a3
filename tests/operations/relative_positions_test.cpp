// Relative positions. Buckets are compared with those of transformers 5.23,
// T5Attention._relative_position_bucket, and the gradient of the bias with differences of the result.

#include <cmath>

#include "engine/layers/attention.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

RUNS_ON(.on_cuda = {1});

namespace shard::testing {

namespace {

using Indices = std::vector<Index>;

/// Numbers around 0, different for each seed.
Tensor some(const Shape& shape, int seed) {
  std::vector<float> values;
  for (Index i = 0; i < num_elements(shape); ++i)
    values.push_back(static_cast<float>((static_cast<int>(i) * 7 + seed * 5) % 11 - 5) / 8);
  return Tensor::from_host(shape, values);
}

/// Two sequences of 3 queries and 4 keys, with two heads of 2, whose scores have a bias.
struct Biased {
  Indices at_q{0, 1, 2}, at_k{0, 1, 2, 3};
  Tensor q = some({6, 4}, 1), k = some({8, 4}, 2), v = some({8, 4}, 3), dout = some({6, 4}, 4);
  Tensor bias = some({12, 2}, 5);
  AttentionHeads heads{.sequences = 2, .head_dim = 2, .key_head = {0, 1}, .key_heads = 2};

  explicit Biased(bool is_causal) {
    heads.is_causal = is_causal;
    heads.bias = &bias;
  }
  Tensor result(OnlineSoftmax& softmax) const {
    attend({q, k, v, at_q, at_k}, heads, softmax);
    return attended(heads, 6, softmax);
  }
  /// Σ out dout, with `by` added to an element of the bias.
  double changed(std::size_t element, float by) {
    std::vector<float> values = bias.to_host();
    values[element] += by;
    const Tensor other = Tensor::from_host(bias.shape(), values);
    heads.bias = &other;
    OnlineSoftmax softmax;
    const std::vector<float> out = result(softmax).to_host(), d = dout.to_host();
    heads.bias = &bias;
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += double{out[i]} * double{d[i]};
    return sum;
  }
};

}  // namespace

TEST_CASE("the bucket of each distance is the published one") {
  const Indices keys{0,   180, 188, 189, 192, 194, 195, 196, 197, 198,
                     199, 200, 201, 202, 203, 204, 207, 212, 213, 264};
  auto buckets = [&](Index count, Index max_distance, bool is_bidirectional) {
    return buckets_of(Indices{200}, keys, {count, max_distance, is_bidirectional});
  };
  CHECK(buckets(8, 12, true) == Indices{3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 1, 0, 5, 6, 6, 6, 7, 7, 7, 7});
  CHECK(buckets(8, 12, false) == Indices{7, 7, 7, 7, 6, 5, 4, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(buckets(32, 128, true) ==
        Indices{15, 10, 9, 8, 8, 6, 5, 4, 3, 2, 1, 0, 17, 18, 19, 20, 23, 25, 25, 30});
  CHECK(buckets(9, 20, false) == Indices{8, 8, 7, 7, 6, 5, 4, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("a bias has a row for each query and key, in this order") {
  CHECK(buckets_of(Indices{0, 1}, Indices{0, 1, 2}, {8, 12, true}) == Indices{0, 5, 6, 1, 0, 5});
}

TEST_CASE("the gradient of the bias is that of the result, over all sequences") {
  for (bool is_causal : {true, false}) {
    CAPTURE(is_causal);
    Biased a(is_causal);
    OnlineSoftmax softmax;
    const Tensor out = a.result(softmax);
    Tensor dbias(a.bias.shape());
    attend_backward(a.dout, out, {a.q, a.k, a.v, a.at_q, a.at_k}, a.heads, softmax, &dbias);
    const std::vector<float> given = dbias.to_host();
    double largest = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
      CAPTURE(i);
      const double expected = (a.changed(i, 0x1p-6F) - a.changed(i, -0x1p-6F)) / 0x1p-5;
      CHECK(std::abs(given[i] - expected) < 1e-4);
      largest = std::max(largest, std::abs(expected));
    }
    CHECK(largest > 0.05);
    // A causal query does not see the keys behind it.
    CHECK((given[2 * 3] == 0) == is_causal);
  }
}

}  // namespace shard::testing
