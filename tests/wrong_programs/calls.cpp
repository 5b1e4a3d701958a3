#include "tests/wrong_programs/calls.hpp"

#include <sstream>

namespace shard::testing {

namespace {

using C = Communicator;

Tensor matrix(Index rows = 3, Index columns = 2) {
  return Tensor({rows, columns});
}
/// How many of six elements go to each device.
std::vector<Index> counts(const C& g) {
  return std::vector<Index>(static_cast<std::size_t>(g.num_devices()), 6 / g.num_devices());
}
Tensor six() {
  return Tensor({6});
}
/// A tensor that lives as long as the program.
Tensor& kept() {
  static Tensor tensor({3, 2});
  return tensor;
}
std::ostringstream& page() {
  static std::ostringstream stream;
  return stream;
}
Future<> to_the_right(C& g, SourceLine where = SourceLine::current()) {
  const Tensor src({3});
  Tensor dst({3});
  return g.send_async(src, dst, (g.device_id() + 1) % g.num_devices(), where);
}
constexpr ReduceOp sum = ReduceOp::sum;

CollectiveCall barrier() {
  return {"barrier", "barrier", false, true, {"barrier", CALL(g.barrier())}, {}};
}
CollectiveCall all_gather() {
  return {
      "all_gather",
      "all_gather",
      true,
      true,
      {"all_gather of (3, 2) along axis 0", CALL(g.all_gather_async(matrix(), 0))},
      {{"another shape", {"all_gather of (3, 4) along axis 0", CALL(g.all_gather_async(matrix(3, 4), 0))}},
       {"another rank", {"all_gather of (3,) along axis 0", CALL(g.all_gather_async(Tensor({3}), 0))}},
       {"another axis", {"all_gather of (3, 2) along axis 1", CALL(g.all_gather_async(matrix(), 1))}}}};
}
CollectiveCall all_gather_kept() {
  return {"all_gather, kept",
          "all_gather",
          true,
          true,
          {"all_gather of (3, 2) along axis 1", CALL(g.all_gather_async(std::as_const(kept()), 1))},
          {{"another shape", {"all_gather of (4, 2) along axis 1", CALL(g.all_gather_async(matrix(4), 1))}},
           {"another rank",
            {"all_gather of (3, 2, 1) along axis 1", CALL(g.all_gather_async(Tensor({3, 2, 1}), 1))}},
           {"another axis",
            {"all_gather of (3, 2) along axis 0", CALL(g.all_gather_async(std::as_const(kept()), 0))}}}};
}
CollectiveCall all_reduce() {
  return {"all_reduce",
          "all_reduce",
          true,
          true,
          {"all_reduce(sum) of (3, 2)", CALL(g.all_reduce_async(matrix(), sum))},
          {{"another shape", {"all_reduce(sum) of (3, 4)", CALL(g.all_reduce_async(matrix(3, 4), sum))}},
           {"another rank", {"all_reduce(sum) of (6,)", CALL(g.all_reduce_async(six(), sum))}},
           {"another operation",
            {"all_reduce(avg) of (3, 2)", CALL(g.all_reduce_async(matrix(), ReduceOp::avg))}}}};
}
CollectiveCall reduce_scatter() {
  return {
      "reduce_scatter",
      "reduce_scatter",
      true,
      true,
      {"reduce_scatter(sum) of (3, 2) along axis 0", CALL(g.reduce_scatter_async(matrix(), sum, 0))},
      {{"another shape",
        {"reduce_scatter(sum) of (2, 2) along axis 0", CALL(g.reduce_scatter_async(matrix(2, 2), sum, 0))}},
       {"another rank",
        {"reduce_scatter(sum) of (6,) along axis 0", CALL(g.reduce_scatter_async(six(), sum, 0))}},
       {"another operation",
        {"reduce_scatter(max) of (3, 2) along axis 0",
         CALL(g.reduce_scatter_async(matrix(), ReduceOp::max, 0))}},
       {"another axis",
        {"reduce_scatter(sum) of (3, 2) along axis 1", CALL(g.reduce_scatter_async(matrix(), sum, 1))}}}};
}
CollectiveCall all_to_all() {
  return {
      "all_to_all",
      "all_to_all",
      true,
      true,
      {"all_to_all of (3, 2) from axis 0 to axis 1", CALL(g.all_to_all_async(matrix(), 0, 1))},
      {{"another shape",
        {"all_to_all of (5, 2) from axis 0 to axis 1", CALL(g.all_to_all_async(matrix(5), 0, 1))}},
       {"another rank",
        {"all_to_all of (3, 2, 1) from axis 0 to axis 1", CALL(g.all_to_all_async(Tensor({3, 2, 1}), 0, 1))}},
       {"another axis",
        {"all_to_all of (3, 2) from axis 1 to axis 0", CALL(g.all_to_all_async(matrix(), 1, 0))}}}};
}
CollectiveCall all_to_all_of_counts() {
  return {
      "all_to_all, counts",
      "all_to_all",
      true,
      true,
      {"all_to_all of (6,) from axis 0 to axis 0", CALL(g.all_to_all_async(six(), counts(g), 0))},
      {{"another rank",
        {"all_to_all of (6, 1) from axis 0 to axis 0", CALL(g.all_to_all_async(matrix(6, 1), counts(g), 0))}},
       {"another axis",
        {"all_to_all of (3, 6) from axis 1 to axis 1",
         CALL(g.all_to_all_async(matrix(3, 6), counts(g), 1))}}}};
}
CollectiveCall broadcast() {
  return {"broadcast",
          "broadcast",
          true,
          true,
          {"broadcast from device 0", CALL(g.broadcast_async(matrix(), 0))},
          {{"another root", {"broadcast from device 2", CALL(g.broadcast_async(matrix(), 2))}}}};
}
CollectiveCall send_async() {
  return {"send_async", "send_async", true, true, {"send_async", CALL(to_the_right(g))}, {}};
}
CollectiveCall split() {
  return {"split", "split", false, true, {"split", CALL(g.split(0, 0))}, {}};
}
CollectiveCall exchange() {
  return {"exchange",
          "an exchange of \"rows\"",
          false,
          true,
          {"an exchange of \"rows\"", CALL(g.exchange("rows", 3))},
          {{"another subject", {"an exchange of \"columns\"", CALL(g.exchange("columns", 3))}}}};
}
CollectiveCall gather() {
  return {"gather",
          "a gather of \"names\"",
          false,
          false,
          {"a gather of \"names\"", CALL(g.gather("names", "device"))},
          {{"another subject", {"a gather of \"colours\"", CALL(g.gather("colours", "red"))}}}};
}
CollectiveCall print() {
  return {"print_in_device_order",
          "a gather of \"print_in_device_order\"",
          false,
          false,
          {"a gather of \"print_in_device_order\"", CALL(print_in_device_order(g, page(), "x", kept()))},
          {}};
}

}  // namespace

const std::vector<CollectiveCall>& collective_calls() {
  static const std::vector<CollectiveCall> calls = {barrier(),
                                                    all_gather(),
                                                    all_gather_kept(),
                                                    all_reduce(),
                                                    reduce_scatter(),
                                                    all_to_all(),
                                                    all_to_all_of_counts(),
                                                    broadcast(),
                                                    send_async(),
                                                    split(),
                                                    exchange(),
                                                    gather(),
                                                    print()};
  return calls;
}

const Form& another_call(const CollectiveCall& call) {
  static const Form barrier("barrier", CALL(g.barrier()));
  static const Form product("all_reduce(prod) of (2,)",
                            CALL(g.all_reduce_async(Tensor({2}), ReduceOp::prod)));
  return call.name == "barrier" ? product : barrier;
}

}  // namespace shard::testing
