// Collectives from one layout to another, and conversions to a Placed.

#include "engine/device/books/ledger.hpp"
#include "tests/harness/refused.hpp"
#include "tests/layouts/laid_out.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {3}, .on_cuda = {3});

namespace {

/// Extents around the number of devices, below it, and 0.
const std::vector<Shape> matrices = {{7, 6}, {1, 1}, {3, 10}, {0, 4}, {5, 0}, {16, 8}};

/// This device's slice must be that of `whole`, cut by the rule of split.hpp.
template <int Axis>
void check_slice(const Sharded<Axis>& slice, const HostTensor& whole) {
  const Range range = part(whole.shape[Axis], devices(), me());
  CHECK(slice.global_shape() == whole.shape);
  CHECK(slice.offset() == range.begin);
  CHECK(difference(slice.local(), sliced(whole, Axis, range)) == "");
}

}  // namespace

TEST_CASE("all_reduce makes a Partial whole") {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{7, 6}, Shape{2, 0}, Shape{2, 3, 4}}) {
    CAPTURE(to_string(shape));
    const HostTensor whole = integers(shape, 0);
    const Replicated sum = engine().all_reduce(laid_out<Partial>(whole, {}));
    CHECK(sum.global_shape() == shape);
    CHECK(difference(sum.local(), whole) == "");
    Future<Replicated> later = engine().all_reduce_async(laid_out<Partial>(whole, {}));
    CHECK(difference(later.get().local(), whole) == "");
  }
}

TEST_CASE("reduce_scatter leaves a slice of the sum, and all_gather makes it whole") {
  for (const Shape& shape : matrices) {
    CAPTURE(to_string(shape));
    const HostTensor whole = integers(shape, 0);
    Sharded<0> rows = engine().reduce_scatter<0>(laid_out<Partial>(whole, {}));
    check_slice(rows, whole);
    Sharded<1> columns = engine().reduce_scatter_async<1>(laid_out<Partial>(whole, {})).get();
    check_slice(columns, whole);
    CHECK(difference(engine().all_gather(std::move(rows)).local(), whole) == "");
    const Replicated gathered = engine().all_gather_async(std::move(columns)).get();
    CHECK(gathered.global_shape() == shape);
    CHECK(difference(gathered.local(), whole) == "");
  }
}

TEST_CASE("all_gather undoes any cut, and can keep the slice for later") {
  for (const Shape& shape : matrices) {
    const HostTensor whole = integers(shape, 0);
    const Sharded<0> rows = laid_out<Sharded<0>>(whole, {uneven_cut(shape[0])});
    Sharded<1> columns = laid_out<Sharded<1>>(whole, {uneven_cut(shape[1])});
    CHECK(difference(engine().all_gather(rows).local(), whole) == "");
    CHECK(difference(rows.local(), sliced(whole, 0, mine(uneven_cut(shape[0])))) == "");
    CHECK(difference(engine().all_gather(std::move(columns)).local(), whole) == "");
  }
}

TEST_CASE("packed addends are reduced together") {
  const std::vector<Shape> packed = {{2, 3}, {5}, {0, 4}, {}, {1, 7}};
  std::vector<Partial> addends;
  Index elements = 0;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    addends.push_back(laid_out<Partial>(integers(packed[i], static_cast<int>(i)), {}));
    elements += num_elements(packed[i]);
  }
  Partial row = pack(std::move(addends));
  CHECK(row.global_shape() == Shape{elements});
  const std::vector<Replicated> sums = unpack(engine().all_reduce(std::move(row)), packed);
  REQUIRE(sums.size() == packed.size());
  for (std::size_t i = 0; i < packed.size(); ++i) {
    CHECK(sums[i].global_shape() == packed[i]);
    CHECK(difference(sums[i].local(), integers(packed[i], static_cast<int>(i))) == "");
  }
  REFUSED("", unpack(Replicated(group(), Tensor({6})), {{2, 2}, {1}}));
  REFUSED("", unpack(Replicated(group(), Tensor({6})), {{2, 2}, {3}}));
}

TEST_CASE("shard takes my slice without communication, and all_gather undoes it") {
  for (const Shape& shape : matrices) {
    CAPTURE(to_string(shape));
    const HostTensor whole = integers(shape, 0);
    const Replicated replicated(group(), to_device(whole));
    ledger().reset();
    Sharded<0> rows = engine().shard<0>(replicated);
    Sharded<1> columns = engine().shard<1>(replicated);
    CHECK(ledger().traffic() == Traffic{});
    check_slice(rows, whole);
    check_slice(columns, whole);
    CHECK(difference(engine().all_gather(std::move(rows)).local(), whole) == "");
    CHECK(difference(engine().all_gather(std::move(columns)).local(), whole) == "");
  }
}

TEST_CASE("all_to_all moves the cut to another axis and back") {
  for (const Shape& shape : matrices)
    for (Cut (*cut)(Index) : {even_cut, uneven_cut}) {
      CAPTURE(to_string(shape));
      const HostTensor whole = integers(shape, 0);
      Sharded<1> columns = engine().all_to_all<0, 1>(laid_out<Sharded<0>>(whole, {cut(shape[0])}));
      check_slice(columns, whole);
      Sharded<0> rows = engine().all_to_all<1, 0>(std::move(columns));
      check_slice(rows, whole);
    }
  const HostTensor cube = integers({3, 7, 5}, 0);
  Sharded<2> last = engine().all_to_all<1, 2>(laid_out<Sharded<1>>(cube, {even_cut(7)}));
  check_slice(last, cube);
  check_slice(engine().all_to_all<2, 0>(std::move(last)), cube);
}

TEST_CASE("broadcast makes an Owned whole") {
  for (int owner = 0; owner < devices(); ++owner)
    for (const Shape& shape : matrices) {
      const HostTensor whole = integers(shape, owner);
      const Replicated everywhere = engine().broadcast(laid_out<Owned>(whole, {{}, owner}));
      CHECK(everywhere.global_shape() == shape);
      CHECK(difference(everywhere.local(), whole) == "");
    }
}

TEST_CASE("my_rows finds out where my rows lie") {
  const HostTensor whole = integers({13, 2}, 0);
  for (const Cut& cut : {even_cut(13), uneven_cut(13)}) {
    const Sharded<0> rows = engine().my_rows(to_device(sliced(whole, 0, mine(cut))));
    CHECK(rows.global_shape() == whole.shape);
    CHECK(rows.offset() == mine(cut).begin);
  }
}

TEST_CASE("an axis that a tensor has not is refused") {
  REFUSED("", engine().reduce_scatter<1>(Partial(group(), Tensor({3}))));
  REFUSED("", engine().shard<1>(Replicated(group(), Tensor({3}))));
}

namespace {

void check_placed(const Placed& placed, const HostTensor& whole, const HostTensor& local,
                  const Placement& placement, Index offset) {
  CHECK(placed.global_shape() == whole.shape);
  CHECK(placed.placement() == placement);
  Shape begin(whole.shape.size(), 0);
  if (placement.kind == Placement::Kind::sharded) begin[static_cast<std::size_t>(placement.axis)] = offset;
  CHECK(placed.begin() == begin);
  CHECK(placed.first_row() == (placement == Placement::sharded(0) ? offset : 0));
  CHECK(placed.is_here());
  CHECK(difference(placed.local(), local) == "");
  CHECK(difference(placed.slice_of(to_device(whole)), local) == "");
  REFUSED("", placed.slice_of(Tensor({1, 2, 3})));
}

}  // namespace

TEST_CASE("what leaves an engine knows how it lies") {
  for (const Shape& shape : matrices)
    for (Cut (*cut)(Index) : {even_cut, uneven_cut}) {
      CAPTURE(to_string(shape));
      const HostTensor whole = integers(shape, 0);
      const Cut rows = cut(shape[0]), columns = cut(shape[1]);
      check_placed(laid_out<Replicated>(whole, {}), whole, whole, Placement::replicated(), 0);
      check_placed(laid_out<Sharded<0>>(whole, {rows}), whole, sliced(whole, 0, mine(rows)),
                   Placement::sharded(0), mine(rows).begin);
      check_placed(laid_out<Sharded<1>>(whole, {columns}), whole, sliced(whole, 1, mine(columns)),
                   Placement::sharded(1), mine(columns).begin);
    }
}

TEST_CASE("what another device owns is not here") {
  const HostTensor whole = integers({3, 2}, 0);
  for (int owner = 0; owner < devices(); ++owner) {
    const Placed placed = laid_out<Owned>(whole, {{}, owner});
    if (me() == owner) {
      check_placed(placed, whole, whole, Placement::owned(owner), 0);
    } else {
      CHECK(placed.placement() == Placement::owned(owner));
      CHECK_FALSE(placed.is_here());
      CHECK(placed.global_shape() == whole.shape);
      CHECK(placed.local().size() == 0);
      CHECK(placed.slice_of(to_device(whole)).size() == 0);
    }
  }
}
