// Errors name the line of the source that made the call: for each kind of call, a line of this file.

#include <fmt/format.h>

#include "engine/engines/tape.hpp"
#include "tests/harness/catch.hpp"
#include "tests/layouts/laid_out.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {3}, .on_cuda = {3});

namespace {

std::string at_line(unsigned line) {
  return fmt::format(", at tests/layouts/source_lines_test.cpp:{}", line);
}

/// A wrong call, and its line: `HERE([] { ... })`, all in one line.
struct Mistake {
  unsigned line;
  std::function<void()> make;
};
#define HERE(...)         \
  Mistake {               \
    __LINE__, __VA_ARGS__ \
  }

void check_lines(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    CAPTURE(mistake.line);
    const std::string message = refusal(mistake.make).message;
    CHECK_THAT(message, contains(fmt::format("device {}: ", this_device())));
    CHECK(message.ends_with(at_line(mistake.line)));
    CHECK(!current_call_site().is_known());
  }
}

Tensor matrix() {
  return Tensor({2, 3});
}

// One call in each line, so that each has its own line number.
// clang-format off

const std::vector<Mistake> of_tensors = {
    HERE([] { Tensor({-1}); }),
    HERE([] { Tensor::uninitialized({2, -1}); }),
    HERE([] { Tensor::from_host({2}, {}); }),
    HERE([] { matrix().extent(2); }),
    HERE([] { matrix().reshaped({7}); }),
    HERE([] { Tensor t({2}); Rows(t, 1, 3); }),
    HERE([] { Tensor t; t = Tensor(Shape()); Rows{t}; }),
};

const std::vector<Mistake> of_operations = {
    HERE([] { matmul(matrix(), matrix()); }),
    HERE([] { Tensor c; matmul_accumulate(matrix(), transposed(matrix()), c); }),
    HERE([] { relu_backward(matrix(), Tensor()); }),
    HERE([] { add(matrix(), Tensor()); }),
    HERE([] { subtract(matrix(), Tensor()); }),
    HERE([] { multiply(matrix(), Tensor()); }),
    HERE([] { scaled_difference(matrix(), Tensor(), 1); }),
    HERE([] { slice(matrix(), 2, 0, 1); }),
    HERE([] { Tensor t({2}); assign(Rows(t), matrix()); }),
    HERE([] { concatenate({}, 0); }),
    HERE([] { Tensor t({2}); sgd_update(Rows(t), matrix(), 1); }),
    HERE([] { Tensor t({2}), m, v; adam_update(Rows(t), Tensor({2}), m, v, {}, 1); }),
    HERE([] { Tensor t({2}); integer_update(Rows(t), matrix()); }),
};

const std::vector<Mistake> of_operations_by_rows = {
    HERE([] { softmax(Tensor({2})); }),
    HERE([] { softmax_backward(matrix(), Tensor()); }),
    HERE([] { add_to_rows(matrix(), std::vector<float>()); }),
    HERE([] { top_k(matrix(), 4); }),
    HERE([] { take_columns(matrix(), {}, 1); }),
    HERE([] { put_columns(matrix(), {}, 3); }),
    HERE([] { gather_rows(Tensor(), {}); }),
    HERE([] { Tensor into; scatter_rows(matrix(), {}, into); }),
    HERE([] { scale_rows(matrix(), Tensor(), std::vector<Index>()); }),
    HERE([] { combine_rows(matrix(), {}, Tensor()); }),
    HERE([] { combine_rows(matrix(), {}, 0); }),
    HERE([] { dot_rows(matrix(), matrix(), {}, 1); }),
};

const std::vector<Mistake> of_layer_operations = {
    HERE([] { row_sums(Tensor()); }),
    HERE([] { row_dots(matrix(), Tensor()); }),
    HERE([] { row_max(Tensor()); }),
    HERE([] { column_sums(Tensor()); }),
    HERE([] { column_dots(matrix(), Tensor()); }),
    HERE([] { scale_rows(matrix(), Tensor()); }),
    HERE([] { scale_columns(matrix(), Tensor()); }),
    HERE([] { divide_rows(matrix(), Tensor()); }),
    HERE([] { add_to_rows(matrix(), Tensor()); }),
    HERE([] { add_to_columns(matrix(), Tensor()); }),
    HERE([] { round_to(matrix(), 3); }),
    HERE([] { sigmoid_backward(matrix(), Tensor()); }),
    HERE([] { hyperbolic_tangent_backward(matrix(), Tensor()); }),
    HERE([] { silu_backward(matrix(), Tensor()); }),
    HERE([] { gelu_backward(matrix(), Tensor()); }),
    HERE([] { exponentials(matrix(), Tensor(), ExponentialBase::e); }),
    HERE([] { keep_band(Tensor({2}), 0, 0); }),
    HERE([] { row_max(matrix(), Tensor()); }),
    HERE([] { softmax_backward(matrix(), matrix(), Tensor()); }),
    HERE([] { stack_heads(Tensor(), {1, {0, 1}, {0, 1}, 1, {}}); }),
    HERE([] { Tensor into; add_heads(Tensor(), {1, {0, 1}, {0, 1}, 1, {}}, into); }),
    HERE([] { losses_of_labels(Tensor(), Tensor(), Tensor(), {}, ExponentialBase::e); }),
    HERE([] { rotate(matrix(), {}, 2, 1); }),
    HERE([] { rotate_backward(matrix(), {}, 2, 1); }),
    HERE([] { Tensor into; scatter_add_rows(matrix(), {}, into); }),
    HERE([] { subtract_at_columns(matrix(), {}, Tensor()); }),
};

const std::vector<Mistake> of_calls = {
    HERE([] { group().send(-1, matrix()); }),
    HERE([] { group().receive(-1); }),
    HERE([] { group().post_send(-1, matrix()).get(); }),
    HERE([] { group().post_receive(-1, {1}).get(); }),
    HERE([] { Tensor t; group().send_async(t, t, -1).get(); }),
    HERE([] { group().all_gather_async(matrix(), 2).get(); }),
    HERE([] { const Tensor kept = matrix(); group().all_gather_async(kept, 2).get(); }),
    HERE([] { group().all_reduce_async(Tensor(Shape(33, 1)), ReduceOp::sum).get(); }),
    HERE([] { group().reduce_scatter_async(matrix(), ReduceOp::sum, 2).get(); }),
    HERE([] { group().all_to_all_async(matrix(), 0, 2).get(); }),
    HERE([] { group().all_to_all_async(matrix(), std::vector<Index>(), 0).get(); }),
    HERE([] { group().broadcast_async(matrix(), -1).get(); }),
};

const std::vector<Mistake> of_an_engine = {
    HERE([] { engine().send(-1, matrix()); }),
    HERE([] { engine().receive(-1); }),
    HERE([] { engine().post_send(-1, matrix()).get(); }),
    HERE([] { engine().post_receive(-1, {1}).get(); }),
    HERE([] { Tensor t; engine().send_async(t, t, -1).get(); }),
    HERE([] { engine().all_gather(matrix(), 2); }),
    HERE([] { engine().all_reduce(Tensor(Shape(33, 1))); }),
    HERE([] { engine().reduce_scatter(matrix(), ReduceOp::sum, 2); }),
    HERE([] { engine().all_to_all(matrix(), 2); }),
    HERE([] { engine().all_to_all(matrix(), 0, 2); }),
    HERE([] { engine().all_to_all(matrix(), std::vector<Index>()); }),
    HERE([] { engine().broadcast(matrix(), -1); }),
    HERE([] { engine().my_rows(Tensor(Shape())); }),
    HERE([] { Gradients().local("none"); }),
};

const std::vector<Mistake> of_layouts = {
    HERE([] { Sharded<0>(group(), matrix(), {1, 3}, 0); }),
    HERE([] { Owned(group(), matrix(), {2, 3}, -1); }),
    HERE([] { Replicated().group(); }),
    HERE([] { matmul(Replicated(), Replicated()); }),
    HERE([] { matmul(Replicated(group(), matrix()), transposed(Replicated(group(), Tensor({4, 4})))); }),
    HERE([] { relu(Replicated()); }),
    HERE([] { const Replicated kept; relu(kept); }),
    HERE([] { relu_backward(Replicated(), Replicated()); }),
    HERE([] { scale(Partial(), 2); }),
    HERE([] { Replicated() + Replicated(); }),
    HERE([] { Partial(group(), matrix()) + Partial(group(), Tensor({4})); }),
    HERE([] { Replicated sum(group(), matrix()); accumulate(sum, Replicated(group(), Tensor({4}))); }),
    HERE([] { pack({}); }),
    HERE([] { unpack(Replicated(group(), Tensor({4})), {{3}}); }),
    HERE([] { Tape<int>().pop(); }),
    HERE([] { Placed out = Replicated(); }),
    HERE([] { Placed(Replicated(group(), matrix())).slice_of(Tensor()); }),
};

const std::vector<Mistake> of_typed_collectives = {
    HERE([] { engine().all_reduce(Partial()); }),
    HERE([] { engine().all_reduce_async(Partial()).get(); }),
    HERE([] { engine().reduce_scatter<2>(Partial(group(), matrix())); }),
    HERE([] { engine().reduce_scatter_async<2>(Partial(group(), matrix())).get(); }),
    HERE([] { engine().all_gather(Sharded<0>()); }),
    HERE([] { const Sharded<0> kept; engine().all_gather(kept); }),
    HERE([] { engine().all_gather_async(Sharded<0>()).get(); }),
    HERE([] { const Sharded<0> kept; engine().all_gather_async(kept).get(); }),
    HERE([] { engine().shard<2>(Replicated(group(), matrix())); }),
    HERE([] { engine().all_to_all<0, 1>(Sharded<0>()); }),
    HERE([] { engine().broadcast(Owned()); }),
};

// clang-format on

void keep_a_line(SourceLine where = SourceLine::current()) {
  const CallSite outer(where);
  matrix().extent(2);
}

}  // namespace

TEST_CASE("an error names the line of the call: tensors and operations") {
  check_lines(of_tensors);
  check_lines(of_operations);
  check_lines(of_operations_by_rows);
  check_lines(of_layer_operations);
}

TEST_CASE("an error names the line of the call: plain calls") {
  check_lines(of_calls);
  check_lines(of_an_engine);
}

TEST_CASE("an error names the line of the call: layouts") {
  check_lines(of_layouts);
  check_lines(of_typed_collectives);
}

TEST_CASE("a wait names its own line") {
  Future<Tensor> future = group().all_gather_async(Tensor({1}), 0);
  future = std::move(future).then([](Tensor t) { return std::move(t).reshaped({-1}); });
  check_lines({HERE([&] { future.get(); })});
}

TEST_CASE("of a call within a call, the outer one's line is named, and a resumed call's own") {
  check_lines({HERE([] { keep_a_line(); })});
  const SourceLine earlier = SourceLine::current();
  const CallSite later(SourceLine::current());
  const CallSite::Resumed resumed(earlier);
  CHECK(refusal([] { matrix().extent(2); }).message.ends_with(at_line(earlier.line())));
}

TEST_CASE("outside of all calls an error names no line") {
  const Refusal refused = refusal([] { refuse(Code::argument, "call", "this", "that"); });
  CHECK(refused.message == fmt::format("device {}: call: expected this, given that", this_device()));
}

TEST_CASE("a line is named by its path below chapters or tests") {
  const auto named = [](const char* path) { return to_string(SourceLine::current(path, 7)); };
  CHECK(named("/home/me/chapters/02/x.hpp") == "chapters/02/x.hpp:7");
  CHECK(named("chapters/02/x.hpp") == "chapters/02/x.hpp:7");
  CHECK(named("/tests/chapters/02/x.hpp") == "chapters/02/x.hpp:7");
  CHECK(named("/chapters/tests/chapters.cpp") == "tests/chapters.cpp:7");
  CHECK(named("/my_chapters/x.hpp") == "/my_chapters/x.hpp:7");
  CHECK(named("x.hpp") == "x.hpp:7");
  CHECK(to_string(SourceLine()).empty());
}
