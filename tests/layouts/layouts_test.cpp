// Compares products and elementwise functions of layouts with those of the whole matrices, exactly, and
// checks what layouts refuse at run time. compile_fail/ checks what they refuse at compile time.

#include <fmt/format.h>

#include "engine/device/books/ledger.hpp"
#include "engine/weights/foreign_model.hpp"
#include "tests/harness/refused.hpp"
#include "tests/layouts/laid_out.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {3}, .on_cuda = {3});

namespace {

constexpr int mismatch = static_cast<int>(Code::mismatch);
constexpr int argument = static_cast<int>(Code::argument);

using R = Replicated;
using S0 = Sharded<0>;
using S1 = Sharded<1>;
using P = Partial;
using O = Owned;

// All legal products, and no others.
template <class A, class B>
constexpr bool is_legal = detail::Product<A, B>::legal;
template <class A>
constexpr int legal_partners = is_legal<A, R> + is_legal<A, S0> + is_legal<A, S1> + is_legal<A, P> +
                               is_legal<A, O> + is_legal<A, Sharded<2>>;
static_assert(is_legal<R, R> && is_legal<R, S1> && is_legal<R, P> && legal_partners<R> == 3);
static_assert(is_legal<S0, R> && legal_partners<S0> == 1);
static_assert(is_legal<S1, S0> && legal_partners<S1> == 1);
static_assert(is_legal<P, R> && legal_partners<P> == 1);
static_assert(is_legal<O, O> && legal_partners<O> == 1);
static_assert(legal_partners<Sharded<2>> == 0);

// Layouts move and are not copied. compile_fail/ tests that none converts to another: the compiler finds such
// conversions, and refuses them with a sentence.
template <class L>
constexpr bool only_moves = std::is_nothrow_move_constructible_v<L>&& std::is_nothrow_move_assignable_v<L> &&
                            !std::is_copy_constructible_v<L> && !std::is_copy_assignable_v<L>;
static_assert(only_moves<R> && only_moves<S0> && only_moves<S1> && only_moves<P> && only_moves<O>);
static_assert(!std::is_copy_constructible_v<Placed> && std::is_nothrow_move_constructible_v<Placed>);

struct Extents {
  Index m, k, n;
};
const std::vector<Extents> all_extents = {{1, 1, 1}, {2, 3, 5}, {7, 4, 1}, {5, 11, 6},
                                          {0, 3, 2}, {3, 0, 2}, {9, 8, 10}};

/// The layout of a matrix as a product reads it, if it is stored as L and maybe transposed.
template <class L, bool IsTransposed>
using ReadAs = std::conditional_t<
    !IsTransposed, L,
    std::conditional_t<std::same_as<L, S0>, S1, std::conditional_t<std::same_as<L, S1>, S0, L>>>;

/// One product: operands stored as A and B, each transposed or not, have the result Result.
template <class A, bool TA, class B, bool TB, class Result>
void check_product(Extents e, Cut (*cut)(Index), int owner) {
  CAPTURE(e.m, e.k, e.n, TA, TB, owner);
  const HostTensor a = integers(TA ? Shape{e.k, e.m} : Shape{e.m, e.k}, 0),
                   b = integers(TB ? Shape{e.n, e.k} : Shape{e.k, e.n}, 1);
  const Cut a_cut = axis_of<A> < 0 ? Cut() : cut(a.shape[static_cast<std::size_t>(axis_of<A>)]);
  const Cut b_cut = axis_of<B> < 0 ? Cut() : cut(b.shape[static_cast<std::size_t>(axis_of<B>)]);
  const A x = laid_out<A>(a, {a_cut, owner});
  const B y = laid_out<B>(b, {b_cut, owner});
  auto multiply = [&] {
    if constexpr (TA && TB) return matmul(transposed(x), transposed(y));
    if constexpr (TA && !TB) return matmul(transposed(x), y);
    if constexpr (!TA && TB) return matmul(x, transposed(y));
    if constexpr (!TA && !TB) return matmul(x, y);
  };
  static_assert(std::same_as<decltype(multiply()), Result>);
  static_assert(std::same_as<typename detail::Product<ReadAs<A, TA>, ReadAs<B, TB>>::type, Result>);
  Result c = multiply();
  CHECK(c.global_shape() == Shape{e.m, e.n});
  if constexpr (axis_of<Result> == 0) CHECK(c.offset() == mine(a_cut).begin);
  if constexpr (axis_of<Result> == 1) CHECK(c.offset() == mine(b_cut).begin);
  if constexpr (std::same_as<Result, Owned>) CHECK(c.owner() == owner);
  const HostTensor expected = product(TA ? transposed(a) : a, TB ? transposed(b) : b);
  CHECK(difference(whole_of(engine(), std::move(c)), expected) == "");
}

/// Operands that a product reads as A and B: each is stored so, or transposed.
template <class A, class B, class Result>
void check_products() {
  for (const Extents& e : all_extents)
    for (Cut (*cut)(Index) : {even_cut, uneven_cut}) {
      check_product<A, false, B, false, Result>(e, cut, devices() - 1);
      check_product<ReadAs<A, true>, true, B, false, Result>(e, cut, devices() - 1);
      check_product<A, false, ReadAs<B, true>, true, Result>(e, cut, devices() - 1);
      check_product<ReadAs<A, true>, true, ReadAs<B, true>, true, Result>(e, cut, devices() - 1);
    }
}

}  // namespace

TEST_CASE("each legal product, of operands as they are and transposed, has its layout and its values") {
  check_products<R, R, R>();
  check_products<S0, R, S0>();
  check_products<R, S1, S1>();
  check_products<S1, S0, P>();
  check_products<P, R, P>();
  check_products<R, P, P>();
  check_products<O, O, O>();
  for (int owner = 0; owner < devices(); ++owner)
    check_product<O, false, O, false, O>({2, 3, 5}, even_cut, owner);
}

TEST_CASE("operands that are cut at different places are refused") {
  const HostTensor a = integers({2, 12}, 0), b = integers({12, 3}, 1);
  const S1 x = laid_out<S1>(a, {even_cut(12)});
  const S0 y = laid_out<S0>(b, {uneven_cut(12)});
  const bool differ = mine(even_cut(12)) != mine(uneven_cut(12));
  const Refusal refused = refusal([&] { matmul(x, y); });
  CHECK(refused.code == (differ ? argument : 0));
  if (differ)
    CHECK_THAT(refused.message, contains("matmul: expected operands cut at the same places, given"));

  S0 rows = laid_out<S0>(b, {even_cut(12)});
  CHECK(refusal([&] { std::move(rows) + y; }).code == (differ ? argument : 0));
  S0 dh = laid_out<S0>(b, {even_cut(12)});
  CHECK(refusal([&] { relu_backward(std::move(dh), y); }).code == (differ ? argument : 0));
}

TEST_CASE("a gradient of another shape, and an operand that was moved from, are named") {
  Replicated d(group(), Tensor({2, 3})), h(group(), Tensor({2, 5})), w(group(), Tensor({5, 3}));
  CHECK_THAT(refusal([&] { relu_backward(std::move(d), h); }).message,
             contains("expected the gradient of (2, 5), given that of (2, 3): a layer between left out"));
  const Replicated x = std::move(h);
  CHECK_THAT(refusal([&] { matmul(h, w); }).message,
             contains("given () and (5, 3): a was moved from, or never set"));
  CHECK(refusal([&] { matmul(x, w); }).code == 0);
}

TEST_CASE("operands of equal size at different offsets are refused") {
  const S1 x(group(), Tensor({2, 1}), {2, 9}, 3);
  const S0 y(group(), Tensor({1, 2}), {9, 2}, 4);
  REFUSED("", matmul(x, y));
  REFUSED("", S0(group(), Tensor({1, 2}), {9, 2}, 3) + y);
}

TEST_CASE("matrices that do not fit are refused") {
  const auto replicated = [](Shape shape) { return Replicated(group(), Tensor(std::move(shape))); };
  REFUSED("", matmul(replicated({2, 3}), replicated({4, 2})));
  REFUSED("", matmul(transposed(replicated({2, 3})), replicated({3, 2})));
  REFUSED("", matmul(replicated({2, 3}), replicated({3})));
  REFUSED("", matmul(replicated({2, 3, 1}), replicated({3, 2})));
  const S1 columns(group(), Tensor({2, 3}), {2, 9},
                   3);  // these slices fit, and their matrices do not
  const S0 rows(group(), Tensor({3, 2}), {8, 2}, 3);
  REFUSED("", matmul(columns, rows));
  REFUSED("", replicated({2, 3}) + replicated({3, 2}));
  REFUSED("", replicated({2, 3}) + replicated({2, 1}));
  REFUSED("", Partial(group(), Tensor({2})) + Partial(group(), Tensor({3})));
}

TEST_CASE("matrices of different owners are refused, on every device") {
  if (devices() == 1) return;
  const HostTensor a = integers({2, 2}, 0);
  const O first = laid_out<O>(a, {{}, 0}), second = laid_out<O>(a, {{}, 1});
  const Refusal refused = refusal([&] { matmul(first, second); });
  CHECK(refused.code == argument);
  CHECK_THAT(refused.message,
             contains(fmt::format("operands of one owner, given those of devices {} and {}", id(0), id(1))));
  REFUSED("", laid_out<O>(a, {{}, 0}) + second);
}

TEST_CASE("a slice must be one of the whole") {
  CHECK(refusal([] { S0(group(), Tensor({2, 3}), {5, 3}, 3); }).code == 0);
  CHECK(refusal([] { S0(group(), Tensor({0, 3}), {5, 3}, 5); }).code == 0);
  REFUSED("", S0(group(), Tensor({2, 3}), {5, 3}, 4));
  REFUSED("", S0(group(), Tensor({2, 3}), {5, 3}, -1));
  REFUSED("", S0(group(), Tensor({2, 3}), {5, 4}, 0));
  REFUSED("", S0(group(), Tensor({2, 3}), {5}, 0));
  REFUSED("", S1(group(), Tensor({2}), {2}, 0));
  CHECK(refusal([] { S1(group(), Tensor({5, 3}), {5, 3}, 0); }).code == 0);
  CHECK_THAT(refusal([] {
               S1(group(), Tensor({2, 3}), {2, 4}, 2);
             }).message,
             contains("Sharded<1>: expected a slice of (2, 4), given (2, 3) at offset 2"));
}

TEST_CASE("only its owner holds an owned tensor") {
  const bool am_owner = me() == 0;
  CHECK(refusal([&] { Owned(group(), Tensor({2}), {2}, 0); }).code == (am_owner ? 0 : argument));
  CHECK(refusal([&] { Owned(group(), Tensor(), {2}, 0); }).code == (am_owner ? argument : 0));
  const Shape mine = am_owner ? Shape{3} : Shape{0};
  CHECK(refusal([&] { Owned(group(), Tensor(mine), {2}, 0); }).code == (am_owner ? argument : 0));
  REFUSED("", Owned(group(), Tensor(), {2}, -1));
  REFUSED("", Owned(group(), Tensor(), {2}, devices()));
  const Owned owned = laid_out<O>(integers({2, 2}, 0), {{}, 0});
  CHECK(owned.is_mine() == am_owner);
  const Refusal refused = refusal([&] { owned.local(); });
  CHECK(refused.code == (am_owner ? 0 : argument));
  if (!am_owner)
    CHECK_THAT(refused.message,
               contains(fmt::format("Owned::local: expected to be called on the owner, device {}", id(0))));
}

namespace {

/// An elementwise function must give the same on layouts and on the whole tensor.
template <class L>
void check_elementwise() {
  const HostTensor a = integers({7, 6}, 2), b = integers({7, 6}, 3);
  for (Cut (*cut)(Index) : {even_cut, uneven_cut}) {
    const Places places{axis_of<L> < 0 ? Cut() : cut(a.shape[static_cast<std::size_t>(axis_of<L>)]),
                        devices() - 1};
    auto with = [&](float element(float, float)) {
      return tabulate(a.shape, [&](const Place& place) { return element(at(a, place), at(b, place)); });
    };
    const L x = laid_out<L>(a, places), y = laid_out<L>(b, places);
    auto check = [&](L result, const HostTensor& expected) {
      CHECK(result.global_shape() == a.shape);
      if constexpr (axis_of<L> >= 0) CHECK(result.offset() == mine(places.cut).begin);
      if constexpr (std::same_as<L, Owned>) CHECK(result.owner() == places.owner);
      CHECK(difference(whole_of(engine(), std::move(result)), expected) == "");
    };
    check(laid_out<L>(a, places) + y, with([](float p, float q) { return p + q; }));
    check(scale(laid_out<L>(a, places), 0.5F), with([](float p, float) { return p / 2; }));
    if constexpr (!std::same_as<L, Partial>) {
      check(relu(x), with([](float p, float) { return p > 0 ? p : 0.0F; }));
      check(relu(laid_out<L>(a, places)), with([](float p, float) { return p > 0 ? p : 0.0F; }));
      check(relu_backward(laid_out<L>(a, places), y),
            with([](float p, float q) { return q > 0 ? p : 0.0F; }));
    }
  }
}

}  // namespace

TEST_CASE("elementwise functions keep the layout") {
  check_elementwise<R>();
  check_elementwise<S0>();
  check_elementwise<S1>();
  check_elementwise<P>();
  check_elementwise<O>();
}

TEST_CASE("a whole tensor and an addend keep their layout under another shape") {
  const HostTensor a = integers({6, 4}, 2);
  const HostTensor expected{{2, 3, 4}, a.values};
  R whole = reshaped(laid_out<R>(a, {}), {2, 3, 4});
  P addend = reshaped(laid_out<P>(a, {}), {2, 3, 4});
  CHECK(addend.global_shape() == expected.shape);
  CHECK(difference(whole_of(engine(), std::move(whole)), expected) == "");
  CHECK(difference(whole_of(engine(), std::move(addend)), expected) == "");
}

TEST_CASE("layouts cost no memory beyond their tensors") {
  const Index bytes = 4 * 30;
  ledger().reset();
  const Index before = ledger().live();
  Replicated r = relu(Replicated(group(), Tensor({5, 6})));
  CHECK(ledger().peak() - before == bytes);
  Replicated moved = std::move(r);
  Partial p = scale(Partial(group(), std::move(moved).local()), 2);
  CHECK(ledger().peak() - before == bytes);
  const Replicated sum = engine().all_reduce(std::move(p));
  CHECK(ledger().live() - before == bytes);
  const Replicated copied = relu(sum);  // an lvalue is not changed
  CHECK(ledger().live() - before == 2 * bytes);
}

TEST_CASE("a checked run verifies that a Replicated is the same everywhere") {
  const HostTensor same = integers({3, 4}, 5);
  const auto claim = [](const HostTensor& host) {
    return refusal([&] { Replicated(group(), to_device(host)); });
  };
  for (int odd = 0; devices() > 1 && odd < devices(); ++odd) {
    CAPTURE(odd);
    HostTensor other = same;
    if (me() == odd) other.values[7] += 1;
    const HostTensor turned{me() == odd ? Shape{4, 3} : Shape{3, 4}, same.values};
    const HostTensor less = me() == odd ? sliced(same, 0, {0, 2}) : same;
    CHECK(claim(other).code == 0);
    const CheckedRun checked;
    CHECK(claim(same).code == 0);
    // Of two devices that differ, the first one counts as right.
    const int culprit = odd == 0 && devices() == 2 ? 1 : odd, usual = culprit == 0 ? 1 : 0;
    auto seen = [&](const std::string& there, const std::string& here) {
      return fmt::format("given {} on device {}, and {} on device {}", culprit == odd ? there : here,
                         id(culprit), culprit == odd ? here : there, id(usual));
    };
    const float value = same.values[7];
    const std::vector<std::pair<HostTensor, std::string>> claims = {
        {other, fmt::format("given {} at (1, 3) on device {}, and {} there on device {}",
                            value + (culprit == odd ? 1 : 0), id(culprit), value + (culprit == odd ? 0 : 1),
                            id(usual))},
        {turned, seen("(4, 3)", "(3, 4)")},
        {less, seen("(2, 4)", "(3, 4)")}};
    for (const auto& [host, text] : claims) {
      const Refusal refused = claim(host);
      CHECK(refused.code == mismatch);
      CHECK_THAT(refused.message, contains("Replicated: expected the same values on every device"));
      CHECK_THAT(refused.message, contains(text));
    }
  }
  ledger().reset();
  const CheckedRun checked;
  CHECK(claim(same).code == 0);
  CHECK(ledger().traffic() == Traffic{});
}
