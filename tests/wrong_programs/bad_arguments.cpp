/// Bad arguments: device 1 gets the error before it sends anything, and continues.

#include "tests/wrong_programs/program.hpp"

namespace shard::testing {

namespace {

/// A call of device 1.
struct BadCall {
  std::string call, class_, says;  ///< "all_gather: expected an axis of (3,), given axis 1"
  SourceLine where;
  std::function<void(Communicator&)> make;
};

const ReduceOp sum = ReduceOp::sum;
const Shape too_many_axes(33, 1);
const char* const axis = "a bad axis";
const char* const device = "a bad device";
const char* const oneself = "a message to oneself";
const char* const counts = "bad counts";
const char* const axes = "too many axes";

Tensor three() {
  return Tensor({3});
}
Tensor& kept() {
  static Tensor tensor({3});
  return tensor;
}

std::vector<BadCall> bad_axes_and_counts() {
  return {{"all_gather", axis, "all_gather: expected an axis of (3,), given axis 1",
           CALL((void)g.all_gather_async(three(), 1))},
          {"all_gather, kept", axis, "all_gather: expected an axis of (3,), given axis -1",
           CALL((void)g.all_gather_async(std::as_const(kept()), -1))},
          {"reduce_scatter", axis, "reduce_scatter: expected an axis of (3,), given axis 7",
           CALL((void)g.reduce_scatter_async(three(), sum, 7))},
          {"all_to_all", axis, "all_to_all: expected an axis of (3,), given axis 2",
           CALL((void)g.all_to_all_async(three(), 2, 0))},
          {"all_to_all", axis, "all_to_all: expected an axis of (3,), given axis 2",
           CALL((void)g.all_to_all_async(three(), 0, 2))},
          {"all_to_all, counts", axis, "all_to_all: expected an axis of (3,), given axis 1",
           CALL((void)g.all_to_all_async(three(), {1, 1, 1}, 1))},
          {"all_to_all, counts", counts, "all_to_all: expected 3 counts that add up to 3, given (1, 1, 2)",
           CALL((void)g.all_to_all_async(three(), {1, 1, 2}, 0))},
          {"all_to_all, counts", counts, "all_to_all: expected 3 counts that add up to 3, given (1, 2)",
           CALL((void)g.all_to_all_async(three(), {1, 2}, 0))},
          {"all_to_all, counts", counts, "all_to_all: expected 3 counts that add up to 3, given (4, 0, -1)",
           CALL((void)g.all_to_all_async(three(), {4, 0, -1}, 0))}};
}

std::vector<BadCall> bad_devices() {
  return {{"broadcast", device, "broadcast: expected a device of 0 to 2, given device 3",
           CALL((void)g.broadcast_async(three(), 3))},
          {"broadcast", device, "broadcast: expected a device of 0 to 2, given device -1",
           CALL((void)g.broadcast_async(three(), -1))},
          {"send_async", device, "send_async: expected a device of 0 to 2, given device 3",
           CALL((void)g.send_async(three(), kept(), 3))},
          {"send_async", "src and dst are one",
           "send_async: expected src and dst to be different tensors, given the same memory twice",
           CALL((void)g.send_async(kept(), kept(), 0))},
          {"send", device, "send: expected a device of 0 to 2 but oneself, given device 3",
           CALL(g.send(3, three()))},
          {"send", oneself, "send: expected a device of 0 to 2 but oneself, given device 1",
           CALL(g.send(1, three()))},
          {"receive", device, "receive: expected a device of 0 to 2 but oneself, given device -1",
           CALL(g.receive(-1))},
          {"receive", oneself, "receive: expected a device of 0 to 2 but oneself, given device 1",
           CALL(g.receive(1))},
          {"post_send", device, "post_send: expected a device of 0 to 2 but oneself, given device 9",
           CALL((void)g.post_send(9, three()))},
          {"post_send", oneself, "post_send: expected a device of 0 to 2 but oneself, given device 1",
           CALL((void)g.post_send(1, three()))},
          {"post_receive", device, "post_receive: expected a device of 0 to 2 but oneself, given device 9",
           CALL((void)g.post_receive(9, {3}))},
          {"post_receive", oneself, "post_receive: expected a device of 0 to 2 but oneself, given device 1",
           CALL((void)g.post_receive(1, {3}))}};
}

std::vector<BadCall> bad_shapes() {
  return {{"send", axes, "send: expected at most 32 axes, given 33", CALL(g.send(0, Tensor(too_many_axes)))},
          {"post_send", axes, "post_send: expected at most 32 axes, given 33",
           CALL((void)g.post_send(0, Tensor(too_many_axes)))},
          {"post_receive", axes, "post_receive: expected at most 32 axes, given 33",
           CALL((void)g.post_receive(0, too_many_axes))},
          {"all_gather", axes, "all_gather: expected at most 32 axes, given 33",
           CALL((void)g.all_gather_async(Tensor(too_many_axes), 0))},
          {"all_reduce", axes, "all_reduce: expected at most 32 axes, given 33",
           CALL((void)g.all_reduce_async(Tensor(too_many_axes), sum))},
          {"reduce_scatter", axes, "reduce_scatter: expected at most 32 axes, given 33",
           CALL((void)g.reduce_scatter_async(Tensor(too_many_axes), sum, 0))},
          {"broadcast", axes, "broadcast: expected at most 32 axes, given 33",
           CALL((void)g.broadcast_async(Tensor(too_many_axes), 1))},
          {"Tensor", "a bad extent", "Tensor: expected extents of 0 or more, given (3, -1)",
           CALL(Tensor({3, -1}))},
          {"Tensor", "too large", "Tensor: expected at most 2^63-1 bytes, given (2147483648, 2147483648)",
           CALL(Tensor({Index{1} << 31, Index{1} << 31}))}};
}

}  // namespace

Programs bad_arguments() {
  Programs programs;
  for (const auto calls : {bad_axes_and_counts, bad_devices, bad_shapes})
    for (const BadCall& bad : calls())
      programs.push_back(together(bad.call, bad.class_, 84,
                                  {fmt::format("device {}: {}, at {}", odd, bad.says, to_string(bad.where))},
                                  [bad] {
                                    if (me() == odd) bad.make(group());
                                  }));
  return programs;
}

}  // namespace shard::testing
