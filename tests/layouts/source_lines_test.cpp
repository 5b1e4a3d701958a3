// Errors name the line of the source that made the call: for each kind of call that no other test refuses
// (REFUSED), a line of this file.

#include <fmt/format.h>

#include "engine/device/layer_operations.hpp"
#include "tests/harness/refused.hpp"
#include "tests/layouts/laid_out.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {3}, .on_cuda = {3});

namespace {

std::string at_line(unsigned line) {
  return fmt::format(", at tests/layouts/source_lines_test.cpp:{}", line);
}

Tensor matrix() {
  return Tensor({2, 3});
}

void keep_a_line(SourceLine where = SourceLine::current()) {
  const CallSite outer(where);
  matrix().extent(2);
}

}  // namespace

TEST_CASE("an error names the line of the call: tensors and operations") {
  Tensor t({2}), m, v, scalar = Tensor(Shape());
  REFUSED("", Tensor::uninitialized({2, -1}));
  REFUSED("", matrix().extent(2));
  REFUSED("", Rows(t, 1, 3));
  REFUSED("", Rows{scalar});
  REFUSED("", assign(Rows(t), matrix()));
  REFUSED("", sgd_update(Rows(t), matrix(), 1));
  REFUSED("", adam_update(Rows(t), Tensor({2}), m, v, {}, 1));
  REFUSED("", integer_update(Rows(t), matrix()));
  REFUSED("", sigmoid_backward(matrix(), Tensor()));
  REFUSED("", hyperbolic_tangent_backward(matrix(), Tensor()));
  REFUSED("", silu_backward(matrix(), Tensor()));
  REFUSED("", gelu_backward(matrix(), Tensor()));
  REFUSED("to_bf16: expected a matrix, given (2,)", to_bf16(t));
  REFUSED("top_k: expected 1 to 3 columns, given 4", top_k_counts(matrix(), 4));
}

TEST_CASE("an error names the line of the call: plain calls") {
  Tensor t, kept = matrix();
  const std::string no_axis = ": expected an axis of (2, 3), given axis 2", no_device = "given device -1";
  REFUSED(no_device, group().send(-1, matrix()));
  REFUSED(fmt::format("but oneself, given device {}", me()), group().send(me(), matrix()));
  REFUSED(no_device, group().receive(-1));
  REFUSED(fmt::format("but oneself, given device {}", me()), group().receive(me()));
  REFUSED(no_device, group().post_send(-1, matrix()).get());
  REFUSED(no_device, group().post_receive(-1, {1}).get());
  REFUSED(fmt::format("given device {}", devices()), group().send_async(t, kept, devices()).get());
  REFUSED("the same memory twice", group().send_async(kept, kept, me()).get());
  REFUSED("all_gather" + no_axis, group().all_gather_async(matrix(), 2).get());
  REFUSED("all_gather" + no_axis, group().all_gather_async(std::as_const(kept), 2).get());
  REFUSED("at most 32 axes, given 33", group().all_reduce_async(Tensor(Shape(33, 1)), ReduceOp::sum).get());
  CHECK(group().all_reduce_async(Tensor(Shape(32, 1)), ReduceOp::sum).get().shape() == Shape(32, 1));
  REFUSED("reduce_scatter" + no_axis, group().reduce_scatter_async(matrix(), ReduceOp::sum, 2).get());
  REFUSED("all_to_all" + no_axis, group().all_to_all_async(matrix(), 0, 2).get());
  REFUSED("all_to_all" + no_axis, group().all_to_all_async(matrix(), 2, 0).get());
  std::vector<Index> counts(static_cast<std::size_t>(devices()));
  REFUSED("counts that add up to 2", group().all_to_all_async(matrix(), counts, 0).get());
  counts[0] = 2, counts.push_back(0);
  REFUSED("counts that add up to 2", group().all_to_all_async(matrix(), counts, 0).get());
  if (devices() > 1) {
    counts.pop_back(), counts[0] = 3, counts[1] = -1;
    REFUSED("counts that add up to 2", group().all_to_all_async(matrix(), counts, 0).get());
  }
  REFUSED(no_device, group().broadcast_async(matrix(), -1).get());
  REFUSED("", engine().post_send(-1, matrix()).get());
  REFUSED("", engine().post_receive(-1, {1}).get());
  REFUSED("", engine().my_rows(Tensor(Shape())));
}

TEST_CASE("an error names the line of the call: layouts") {
  const Replicated whole;
  const Sharded<0> rows;
  Replicated sum(group(), matrix());
  REFUSED("", whole.group());
  REFUSED("", matmul(whole, whole));
  REFUSED("", relu(Replicated()));
  REFUSED("", relu(whole));
  REFUSED("", relu_backward(Replicated(), whole));
  REFUSED("", scale(Partial(), 2));
  REFUSED("", Replicated() + whole);
  REFUSED("", accumulate(sum, Replicated(group(), Tensor({4}))));
  REFUSED("", pack({}));
  REFUSED("", Placed out = Replicated());
  REFUSED("", engine().all_reduce(Partial()));
  REFUSED("", engine().all_reduce_async(Partial()).get());
  REFUSED("", engine().reduce_scatter_async<2>(Partial(group(), matrix())).get());
  REFUSED("", engine().all_gather(Sharded<0>()));
  REFUSED("", engine().all_gather(rows));
  REFUSED("", engine().all_gather_async(Sharded<0>()).get());
  REFUSED("", engine().all_gather_async(rows).get());
  REFUSED("", (engine().all_to_all<0, 1>(Sharded<0>())));
  REFUSED("", engine().broadcast(Owned()));
}

TEST_CASE("a wait names its own line") {
  Future<Tensor> future = group().all_gather_async(Tensor({1}), 0);
  future = std::move(future).then([](Tensor t) { return std::move(t).reshaped({-1}); });
  REFUSED("", future.get());
}

TEST_CASE("of a call within a call, the outer one's line is named, and a resumed call's own") {
  REFUSED("", keep_a_line());
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
