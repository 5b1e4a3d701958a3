/// Attention with keys in pieces equals attention with all keys at once, and is exact on the grid. The order of sums
/// on the CPU.

#include "engine/layers/attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/device/layer_operations.hpp"
#include "engine/workloads/random.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"
#include "tests/operations/small_tensors.hpp"

namespace shard::testing {

namespace {

using Values = std::vector<float>;
using Places = std::vector<Index>;

constexpr Index sequences = 2, length = 7, query_heads = 4, key_heads = 2, d = 4;

AttentionHeads heads_on(const Arithmetic& how, std::optional<Index> window) {
  return {sequences, d, key_heads_of({0, query_heads}, query_heads / key_heads, 0), key_heads, window, how};
}

/// Multiples of 1/8 up to ±2: numbers on the grid.
Tensor on_grid(Index heads, const std::string& name) {
  const CounterRandom random(7, name);
  Values values;
  for (Index i = 0; i < sequences * length * heads * d; ++i)
    values.push_back(static_cast<float>(random.integer(static_cast<std::uint64_t>(i), -16, 16)) / 8);
  return Tensor::from_host({sequences * length, heads * d}, values);
}

Arithmetic grid() {
  return {.unit = 0x1p-3F, .limit = 64, .base = ExponentialBase::two, .score_scale = 0.5F};
}

/// The rows at these places of each sequence.
Tensor at_places(const Tensor& t, const Places& places) {
  Places rows;
  for (Index s = 0; s < sequences; ++s)
    for (Index place : places) rows.push_back(s * length + place);
  return gather_rows(t, rows);
}

struct Problem {
  Tensor q = on_grid(query_heads, "q"), k = on_grid(key_heads, "k"), v = on_grid(key_heads, "v"),
         dout = on_grid(query_heads, "dout");
};

struct Outcome {
  Values o, dq, dk, dv;
  bool operator==(const Outcome&) const = default;
};

/// Attention of the queries at these places, with keys in these pieces.
Outcome in_pieces(const Problem& p, const AttentionHeads& heads, const std::vector<Places>& pieces,
                  const Places& queries) {
  const Tensor q = at_places(p.q, queries), dout = at_places(p.dout, queries);
  OnlineSoftmax softmax;
  for (const Places& piece : pieces) {
    const Tensor k = at_places(p.k, piece), v = at_places(p.v, piece);
    attend({q, k, v, queries, piece}, heads, softmax);
  }
  const Tensor o = attended(heads, q.extent(0), softmax);
  Tensor dq(q.shape()), dk(p.k.shape()), dv(p.v.shape());
  for (const Places& piece : pieces) {
    const Tensor k = at_places(p.k, piece), v = at_places(p.v, piece);
    AttentionGradients g = attend_backward(dout, o, {q, k, v, queries, piece}, heads, softmax);
    dq = add(std::move(dq), g.dq);
    Places rows;
    for (Index s = 0; s < sequences; ++s)
      for (Index place : piece) rows.push_back(s * length + place);
    scatter_add_rows(g.dk, rows, dk);
    scatter_add_rows(g.dv, rows, dv);
  }
  return {o.to_host(), dq.to_host(), dk.to_host(), dv.to_host()};
}

Places places(Index begin, Index end) {
  Places all(static_cast<std::size_t>(end - begin));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

/// The result from the definition in float64, rounded as the grid rounds it.
Values by_definition(const Problem& p, const AttentionHeads& heads) {
  const Values q = p.q.to_host(), k = p.k.to_host(), v = p.v.to_host();
  Values o;
  for (Index row = 0; row < sequences * length; ++row)
    for (Index h = 0; h < query_heads; ++h) {
      const Index g = h / (query_heads / key_heads), at = row % length;
      std::array<double, d> weighted{};
      double sum = 0;
      for (Index key = heads.window ? std::max<Index>(0, at - *heads.window + 1) : 0; key <= at; ++key) {
        const Index key_row = row - at + key;
        double score = 0;
        for (Index c = 0; c < d; ++c)
          score += double{q[static_cast<std::size_t>((row * query_heads + h) * d + c)]} *
                   k[static_cast<std::size_t>((key_row * key_heads + g) * d + c)];
        const double power =
            std::exp2(std::clamp(std::rint(score * double{heads.how.score_scale}), -4.0, 4.0));
        sum += power;
        for (Index c = 0; c < d; ++c)
          weighted[static_cast<std::size_t>(c)] +=
              power * v[static_cast<std::size_t>((key_row * key_heads + g) * d + c)];
      }
      for (double w : weighted)
        o.push_back(static_cast<float>(std::rint(static_cast<float>(w / sum) * 8) / 8));
    }
  return o;
}

}  // namespace

TEST_CASE("attention in pieces, in any order, has the bits of attention at once, backward too") {
  const Problem p;
  const Places all = places(0, length);
  for (std::optional<Index> window :
       {std::optional<Index>(), std::optional<Index>(1), std::optional<Index>(3)}) {
    CAPTURE(window.value_or(0));
    const AttentionHeads heads = heads_on(grid(), window);
    const Outcome at_once = in_pieces(p, heads, {all}, all);
    CHECK(at_once.o == by_definition(p, heads));
    std::vector<Places> one_by_one;
    for (Index place : all) one_by_one.push_back({place});
    do {
      CHECK(in_pieces(p, heads, one_by_one, all) == at_once);
    } while (std::next_permutation(one_by_one.begin() + 4, one_by_one.end()));
    CHECK(in_pieces(p, heads, {places(4, length), places(0, 2), places(2, 4)}, all) == at_once);
    CHECK(in_pieces(p, heads, {{1, 6}, {0, 5}, {2, 4, 3}, {}}, all) == at_once);
    for (Index rows = 1; rows < length; ++rows) {
      AttentionHeads by_blocks = heads;
      by_blocks.block_rows = rows;
      CHECK(in_pieces(p, by_blocks, {all}, all) == at_once);
      CHECK(in_pieces(p, by_blocks, {places(4, length), places(0, 4)}, all) == at_once);
    }
  }
}

TEST_CASE("attention of some queries: their rows of the result, and what they add to the gradients of keys") {
  const Problem p;
  const AttentionHeads heads = heads_on(grid(), 4);
  const Places all = places(0, length), some = {1, 5}, others = {0, 2, 3, 4, 6};
  const Outcome whole = in_pieces(p, heads, {all}, all);
  const Outcome first = in_pieces(p, heads, {all}, some), second = in_pieces(p, heads, {all}, others);
  CHECK(first.o == at_places(Tensor::from_host(p.q.shape(), whole.o), some).to_host());
  CHECK(second.dq == at_places(Tensor::from_host(p.q.shape(), whole.dq), others).to_host());
  for (auto sums :
       {std::tuple(&first.dk, &second.dk, &whole.dk), std::tuple(&first.dv, &second.dv, &whole.dv)}) {
    Values sum = *std::get<0>(sums);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (*std::get<1>(sums))[i];
    CHECK(sum == *std::get<2>(sums));
  }
}

TEST_CASE("attention: a piece that no query sees leaves everything as it is") {
  const Problem p;
  const AttentionHeads heads = heads_on(grid(), 2);
  const Places queries = {2, 3}, later = {4, 5, 6}, seen = {1, 2, 3};
  const Outcome expected = in_pieces(p, heads, {seen}, queries);
  CHECK(in_pieces(p, heads, {later, seen}, queries) == expected);
  CHECK(in_pieces(p, heads, {seen, {0}}, queries) == expected);
}

TEST_CASE("attention by blocks never has all scores, forward and backward") {
  // Without heads and sequences in common, the most that exists grows with the length, not with its square.
  auto most = [](Index tokens) {
    AttentionHeads heads{1, d, {0}, 1};
    heads.block_rows = 8;
    const Places all = places(0, tokens);
    const Tensor q({tokens, d}), k({tokens, d}), v({tokens, d}), dout({tokens, d});
    OnlineSoftmax softmax;
    ledger().reset();
    const Index before = ledger().live();
    attend({q, k, v, all, all}, heads, softmax);
    const Tensor o = attended(heads, tokens, softmax);
    attend_backward(dout, o, {q, k, v, all, all}, heads, softmax);
    return ledger().peak() - before;
  };
  const Index step = most(128) - most(64);
  CHECK(step > 0);
  CHECK(most(256) - most(128) == 2 * step);
}

TEST_CASE("key-value heads of some query heads, counted from the first that is here") {
  CHECK(key_heads_of({0, 6}, 3, 0) == Places{0, 0, 0, 1, 1, 1});
  CHECK(key_heads_of({2, 5}, 2, 1) == Places{0, 0, 1});
  CHECK(key_heads_of({4, 4}, 2, 2) == Places{});
}

TEST_CASE("numbers on the grid are rounded and limited, exponents to integers; real ones stay") {
  const Values values = {0.3F, -0.0625F, 0.1875F, 70, -1e9F, 4.6F, -4.6F, 2.5F};
  auto tensor = [&] { return Tensor::from_host({2, 4}, values); };
  CHECK(grid().is_exact());
  CHECK(grid().rounded(tensor()).to_host() == Values{0.25F, 0, 0.25F, 64, -64, 4.625F, -4.625F, 2.5F});
  CHECK(grid().exponents(tensor()).to_host() == Values{0, 0, 0, 4, -4, 4, -4, 2});
  const Arithmetic real = Arithmetic::real(16);
  CHECK_FALSE(real.is_exact());
  CHECK(real.score_scale == 0.25F);
  CHECK(real.logit_scale == 1);
  CHECK(real.rounded(tensor()).to_host() == values);
  CHECK(real.exponents(tensor()).to_host() == values);
}

TEST_CASE("on the CPU, sums are in float32 and in a fixed order") {
  // Ascending, the sum is 0; in halves, (0 + 2) + (1 + 3), it is 1; in float64 it is 2.
  const Values values = {0x1p24F, 1, 1, -0x1p24F};
  const Values ones(4, 1);
  CHECK(row_sums(matrix(1, 4, values)).to_host() == Values{1});
  CHECK(column_sums(matrix(4, 1, values)).to_host() == Values{0});
  CHECK(row_dots(matrix(1, 4, values), matrix(1, 4, ones)).to_host() == Values{1});
  CHECK(column_dots(matrix(4, 1, values), matrix(4, 1, ones)).to_host() == Values{0});
  Values far_apart(50);  // of every 16th number, one sum
  far_apart[1] = 0x1p24F, far_apart[17] = far_apart[33] = 1, far_apart[49] = -0x1p24F;
  CHECK(row_sums(matrix(1, 50, far_apart)).to_host() == Values{0});
}

}  // namespace shard::testing
