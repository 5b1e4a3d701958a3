// Tensors on a mesh: every legal product of two letters on each of two axes, every collective over an axis,
// nested cuts, and what leaves an engine.

#include "engine/engines/mesh_engine.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/weights/foreign_model.hpp"
#include "tests/harness/meshes.hpp"
#include "tests/harness/refused.hpp"

using namespace shard;
using namespace shard::testing;
using namespace shard::letters;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {3}, .on_cuda = {3});

namespace {

struct outer {
  static constexpr const char* name = "outer";
};
struct inner {
  static constexpr const char* name = "inner";
};
using Grid = MeshAxes<outer, inner>;
template <class... Letters>
using On = OnMesh<Grid, Letters...>;

/// An engine without a strategy, for its collectives.
class PlainMeshEngine : public MeshEngine<Grid> {
 public:
  using MeshEngine::from_outside, MeshEngine::load, MeshEngine::load_at, MeshEngine::MeshEngine,
      MeshEngine::placement;
  void load_checkpoint(const Checkpoint&) override {}
  Placed forward(Tensor) override { return On<R, R>(); }
  Gradients backward(Tensor) override { return {}; }
  Placement input_layout() const override { return placement<S<0>, R>(); }
  Trainables trainable() override { return {}; }
};

/// An engine on each mesh of these devices, in both orders of the axes.
void on_each_mesh(const std::function<void(PlainMeshEngine&)>& check) {
  for (const std::vector<std::string>& order : {Grid::names(), {"inner", "outer"}})
    for (const std::string& text : mesh_texts(order, devices())) {
      CAPTURE(text);
      PlainMeshEngine engine(group(), mesh_shape(text, Grid::names(), devices()));
      check(engine);
    }
}

/// This device's factor of its addend, such that the addends of an axis with P sum to the whole tensor.
template <class Letter>
float factor_on(const Mesh& mesh, const std::string& axis) {
  if (!std::same_as<Letter, P>) return 1;
  const int last = mesh.size(axis) - 1, place = mesh.place(axis);
  return static_cast<float>(place < last ? place + 2 : 1 - last * (last + 3) / 2);
}

/// The part that two letters cut, written here again from their definitions.
template <class Outer, class Inner>
HostTensor part_of(const Mesh& mesh, HostTensor whole) {
  auto cut = [&](int dimension, const char* axis) {
    if (dimension < 0) return;
    const Index extent = whole.shape[static_cast<std::size_t>(dimension)];
    whole = sliced(whole, dimension, part(extent, mesh.size(axis), mesh.place(axis)));
  };
  cut(axis_of<Outer>, "outer");
  cut(axis_of<Inner>, "inner");
  for (float& value : whole.values)
    value *= factor_on<Outer>(mesh, "outer") * factor_on<Inner>(mesh, "inner");
  return whole;
}

template <class Outer, class Inner>
On<Outer, Inner> laid_on(Mesh& mesh, const HostTensor& whole) {
  return On<Outer, Inner>(mesh, to_device(part_of<Outer, Inner>(mesh, whole)), whole.shape);
}

/// A pair of operands of which one has the letter R on this axis.
template <class Axis, class L>
auto settled(PlainMeshEngine& engine, L&& t) {
  using Letter = detail::letter_on<L, Axis>;
  if constexpr (std::same_as<Letter, P>)
    return engine.all_reduce<Axis>(std::move(t));
  else if constexpr (std::same_as<Letter, R>)
    return std::move(t);
  else
    return engine.all_gather<Axis>(std::move(t));
}
template <class L>
Tensor whole_of(PlainMeshEngine& engine, L t) {
  return settled<outer>(engine, settled<inner>(engine, std::move(t))).local().clone();
}

template <class... Pair>
struct Pairs {};
template <class A, class B>
struct Pair {
  using a = A;
  using b = B;
};
using Legal = Pairs<Pair<R, R>, Pair<S<0>, R>, Pair<R, S<1>>, Pair<S<1>, S<0>>, Pair<P, R>, Pair<R, P>>;

template <class F, class... Pair>
void for_each(Pairs<Pair...>, F f) {
  (f(Pair()), ...);
}

template <class L>
using Flipped = typename detail::ReadAs<Transposed<L>>::type;

/// Checks a times b with these letters, each operand as it is and transposed.
template <class OnOuter, class OnInner>
void check_product(PlainMeshEngine& engine, const HostTensor& a, const HostTensor& b) {
  using AO = typename OnOuter::a;
  using BO = typename OnOuter::b;
  using AI = typename OnInner::a;
  using BI = typename OnInner::b;
  const HostTensor expected = product(a, b);
  const auto x = laid_on<AO, AI>(engine.mesh(), a);
  const auto y = laid_on<BO, BI>(engine.mesh(), b);
  const auto xt = laid_on<Flipped<AO>, Flipped<AI>>(engine.mesh(), shard::transposed(a));
  const auto yt = laid_on<Flipped<BO>, Flipped<BI>>(engine.mesh(), shard::transposed(b));
  auto z = matmul(x, y);
  CHECK(z.global_shape() == expected.shape);
  CHECK(difference(whole_of(engine, std::move(z)), expected) == "");
  CHECK(difference(whole_of(engine, matmul(shard::transposed(xt), shard::transposed(yt))), expected) == "");
}

static_assert(!detail::has_product<On<S<0>, S<1>>, On<R, R>>);
static_assert(!detail::has_product<On<P, R>, On<P, R>>);
static_assert(
    std::same_as<decltype(matmul(std::declval<const On<S<0>, R>&>(), std::declval<const On<R, S<1>>&>())),
                 On<S<0>, S<1>>>);

const std::vector<Shape> matrices = {{6, 7}, {1, 3}, {16, 8}, {0, 4}};

int code_of(const std::function<void()>& action) {
  return refusal(action).code;
}

}  // namespace

TEST_CASE("a product is legal where it is legal on every axis, and is one local product") {
  on_each_mesh([](PlainMeshEngine& engine) {
    const HostTensor a = integers({6, 5}, 0), b = integers({5, 7}, 1);
    for_each(Legal(), [&]<class OnOuter>(OnOuter) {
      for_each(Legal(), [&]<class OnInner>(OnInner) { check_product<OnOuter, OnInner>(engine, a, b); });
    });
  });
}

TEST_CASE("two axes that cut one dimension are nested: six rows on 2 x 2 are 2, 1, 2 and 1") {
  if (devices() != 4) return;
  Mesh mesh(group(), {{"outer", 2}, {"inner", 2}});
  const HostTensor whole = integers({6, 2}, 0);
  const On<S<0>, S<0>> t = laid_on<S<0>, S<0>>(mesh, whole);
  const std::vector<Range> rows = {{0, 2}, {2, 3}, {3, 5}, {5, 6}};
  CHECK(t.ranges()[0] == rows[static_cast<std::size_t>(me())]);
  CHECK(difference(t.local(), sliced(whole, 0, rows[static_cast<std::size_t>(me())])) == "");
}

TEST_CASE("the letter W cuts between whole pieces, and has the products of S") {
  on_each_mesh([](PlainMeshEngine& engine) {
    Mesh& mesh = engine.mesh();
    const HostTensor a = integers({12, 5}, 0), b = integers({5, 10}, 1), c = integers({10, 3}, 2);
    const auto checkpoint = host_checkpoint({{"a", a}, {"b", b}, {"c", c}}, "test");
    REFUSED("", engine.load<W<0>, R>(*checkpoint, "a"));  // pieces are not set yet
    mesh.keep_whole("outer", 3);
    mesh.keep_whole("inner", 5);
    const On<W<0>, R> x = engine.load<W<0>, R>(*checkpoint, "a");
    const On<R, W<1>> w = engine.load<R, W<1>>(*checkpoint, "b");
    const On<R, W<0>> v = engine.load<R, W<0>>(*checkpoint, "c");
    const Range sequences = part(3, mesh.size("outer"), mesh.place("outer"));
    const Range heads = part(5, mesh.size("inner"), mesh.place("inner"));
    CHECK(x.ranges()[0] == Range{4 * sequences.begin, 4 * sequences.end});
    On<W<0>, W<1>> h = matmul(x, w);
    CHECK(h.ranges()[1] == Range{2 * heads.begin, 2 * heads.end});
    On<P, W<1>> dw = matmul(shard::transposed(x), h);
    const HostTensor ab = product(a, b);
    CHECK(difference(engine.whole(engine.all_reduce<inner>(matmul(h, v))), product(ab, c)) == "");
    CHECK(difference(engine.whole(engine.all_reduce<outer>(std::move(dw))),
                     product(shard::transposed(a), ab)) == "");
    CHECK(difference(engine.whole(std::move(h)), ab) == "");
    mesh.keep_whole("outer", 7);
    REFUSED("", engine.load<W<0>, R>(*checkpoint, "a"));
  });
}

TEST_CASE("collectives over an axis change the letter of that axis") {
  on_each_mesh([](PlainMeshEngine& engine) {
    Mesh& mesh = engine.mesh();
    for (const Shape& shape : matrices) {
      CAPTURE(to_string(shape));
      const HostTensor whole = integers(shape, 0);
      auto check = [&]<class A, class B>(const On<A, B>& t) {
        CHECK(difference(detail::Access::tensor(t), part_of<A, B>(mesh, whole)) == "");
      };
      check(engine.all_reduce<inner>(laid_on<S<0>, P>(mesh, whole)));
      check(engine.all_reduce<outer>(laid_on<P, S<1>>(mesh, whole)));
      check(engine.all_reduce<outer>(laid_on<P, P>(mesh, whole)));
      check(engine.reduce_scatter<inner, 0>(laid_on<S<0>, P>(mesh, whole)));
      check(engine.reduce_scatter<outer, 0>(laid_on<P, S<1>>(mesh, whole)));
      check(engine.reduce_scatter<inner, 1>(laid_on<P, P>(mesh, whole)));
      check(engine.all_gather<inner>(laid_on<S<0>, S<0>>(mesh, whole)));
      check(engine.all_gather<outer>(laid_on<S<0>, S<1>>(mesh, whole)));
      const On<S<1>, R> kept = laid_on<S<1>, R>(mesh, whole);
      check(engine.all_gather<outer>(kept));
      check(engine.shard<inner, 0>(laid_on<S<0>, R>(mesh, whole)));
      check(engine.shard<outer, 1>(laid_on<R, S<0>>(mesh, whole)));
      check(engine.shard<outer, 1>(laid_on<R, P>(mesh, whole)));
      check(engine.all_to_all<inner, 0, 1>(laid_on<S<0>, S<0>>(mesh, whole)));
      check(engine.all_to_all<inner, 1, 0>(laid_on<S<0>, S<1>>(mesh, whole)));
      check(engine.all_to_all<outer, 0, 1>(laid_on<S<0>, R>(mesh, whole)));
    }
  });
}

TEST_CASE("what leaves an engine on a mesh: its part, its first row, and the whole") {
  on_each_mesh([](PlainMeshEngine& engine) {
    Mesh& mesh = engine.mesh();
    for (const Shape& shape : matrices) {
      CAPTURE(to_string(shape));
      const HostTensor whole = integers(shape, 0);
      auto check = [&]<class A, class B>(On<A, B> t) {
        const Index first_row = t.ranges()[0].begin;
        const HostTensor mine = part_of<A, B>(mesh, whole);
        Placed placed(std::move(t));
        CHECK(placed.first_row() == first_row);
        CHECK(difference(placed.slice_of(to_device(whole)), mine) == "");
        const std::vector<Index> counted =
            group().exchange("counted", placed.counts_here() ? placed.local().size() : 0);
        CHECK(std::accumulate(counted.begin(), counted.end(), Index{0}) == num_elements(shape));
        CHECK(difference(engine.whole(std::move(placed)), whole) == "");
      };
      check(laid_on<S<0>, R>(mesh, whole));
      check(laid_on<R, S<1>>(mesh, whole));
      check(laid_on<S<0>, S<1>>(mesh, whole));
      check(laid_on<S<1>, S<0>>(mesh, whole));
      check(laid_on<S<0>, S<0>>(mesh, whole));
      check(laid_on<R, R>(mesh, whole));
    }
  });
}

TEST_CASE("on a mesh, a part of a wrong shape, two meshes in one product, and a false claim are refused") {
  const int n = devices();
  Mesh mesh(group(), {{"outer", n}, {"inner", 1}}), other(group(), {{"outer", n}, {"inner", 1}});
  REFUSED("", On<S<0>, R>(mesh, Tensor({2, 3}), {3 * n, 3}));
  REFUSED("", On<S<2>, R>(mesh, Tensor({2, 3}), {2, 3}));
  const HostTensor square = integers({4, 4}, 0);
  const auto a = laid_on<R, R>(mesh, square), b = laid_on<R, R>(other, square);
  REFUSED("", matmul(a, b));
  CHECK(code_of([&] { matmul(a, a); }) == 0);
  const CheckedRun checked;
  Mesh checking(group(), {{"outer", 1}, {"inner", n}});
  CHECK(code_of([&] { laid_on<S<0>, R>(checking, square); }) == 0);
  if (n == 1) return;
  CHECK(code_of([&] {
          laid_on<S<0>, R>(checking, integers({4, 4}, me()));
        }) == static_cast<int>(Code::mismatch));
}

TEST_CASE("a tensor that lies at one place of an axis is there, cut by the other axes, and nowhere else") {
  on_each_mesh([](PlainMeshEngine& engine) {
    Mesh& mesh = engine.mesh();
    const HostTensor a = integers({6, 5}, 0), b = integers({5, 7}, 1), ab = product(a, b);
    const auto checkpoint = host_checkpoint({{"a", a}, {"b", b}}, "test");
    for (int owner = 0; owner < mesh.size("inner"); ++owner) {
      CAPTURE(owner);
      const bool is_mine = mesh.place("inner") == owner;
      const std::int64_t before = ledger().live(Purpose::parameters);
      On<S<0>, O> x = engine.load_at<S<0>, O>(owner, *checkpoint, "a");
      const On<R, O> w = engine.load_at<R, O>(owner, *checkpoint, "b");
      CHECK((ledger().live(Purpose::parameters) > before) == is_mine);
      CHECK(x.is_mine() == is_mine);
      CHECK(x.owner() == owner);
      CHECK(x.global_shape() == a.shape);
      Placed placed = is_mine ? Placed(matmul(x, w)) : Placed(On<S<0>, O>::elsewhere(mesh, ab.shape, owner));
      CHECK(placed.is_here() == is_mine);
      const HostTensor mine = part_of<S<0>, R>(mesh, ab);
      if (is_mine) CHECK(difference(placed.slice_of(to_device(ab)), mine) == "");
      if (!is_mine) CHECK(placed.slice_of(to_device(ab)).size() == 0);
      const std::vector<Index> counted =
          group().exchange("counted", placed.counts_here() ? placed.local().size() : 0);
      CHECK(std::accumulate(counted.begin(), counted.end(), Index{0}) == num_elements(ab.shape));
      CHECK(difference(engine.whole(std::move(placed)), ab) == "");
      CHECK(engine.placement<S<0>, O>(owner).is_here(group()) == is_mine);
    }
  });
}

TEST_CASE("a tensor may lie at one place of two axes together, once they are joined") {
  on_each_mesh([](PlainMeshEngine& engine) {
    Mesh& mesh = engine.mesh();
    const HostTensor a = integers({6, 5}, 0);
    const auto checkpoint = host_checkpoint({{"a", a}}, "test");
    check_refused([&] { mesh.joined({"outer", "inner"}); }, "");
    Communicator& both = mesh.axes({"outer", "inner"});
    CHECK(&mesh.joined({"outer", "inner"}) == &both);
    for (int owner = 0; owner < both.num_devices(); ++owner) {
      CAPTURE(owner);
      On<O, O> x = engine.load_at<O, O>(owner, *checkpoint, "a");
      CHECK(x.is_mine() == (both.device_id() == owner));
      CHECK(x.owner() == owner);
      Placed placed = std::move(x);
      CHECK(placed.is_here() == (both.device_id() == owner));
      CHECK(difference(engine.whole(std::move(placed)), a) == "");
    }
  });
}

TEST_CASE("rows that no rule cuts keep their number in a sum, and do not leave an engine") {
  on_each_mesh([](PlainMeshEngine& engine) {
    Mesh& mesh = engine.mesh();
    const Index rows = 2 * mesh.place("outer") + 1;  // 1, 3, 5, ...
    const Index all = Index{mesh.size("outer")} * mesh.size("outer");
    const HostTensor mine = integers({rows, 4}, mesh.place("outer"));
    On<S<0>, R> sum = engine.all_reduce<inner>(On<S<0>, P>::uneven(mesh, to_device(mine), {all, 4}));
    CHECK(sum.local().shape() == mine.shape);
    CHECK(sum.local().to_host()[0] == mine.values[0] * static_cast<float>(mesh.size("inner")));
    const bool is_even = part(all, mesh.size("outer"), mesh.place("outer")).size() == rows;
    CHECK(code_of([&] { Placed(std::move(sum)); }) == (is_even ? 0 : static_cast<int>(Code::argument)));
  });
}
