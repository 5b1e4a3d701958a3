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

template <class Action>
OtherForm other(std::string class_, std::string text, SourceLine where, Action action) {
  return {std::move(class_), Form(std::move(text), where, action)};
}
/// An asynchronous call. Errors name it without what stands behind a comma.
CollectiveCall async(const std::string& name, const Form& form, const std::vector<OtherForm>& others = {}) {
  return {name, name.substr(0, name.find(',')), true, true, form, others};
}
/// One that is done when it returns.
CollectiveCall at_once(const std::string& name, const Form& form, const std::vector<OtherForm>& others = {},
                       bool is_agreed = true) {
  return {name, form.text, false, is_agreed, form, others};
}

const std::vector<CollectiveCall> all_calls = {
    at_once("barrier", Form("barrier", CALL(g.barrier()))),
    async(
        "all_gather", Form("all_gather of (3, 2) along axis 0", CALL(g.all_gather_async(matrix(), 0))),
        {other("another shape", "all_gather of (3, 4) along axis 0",
               CALL(g.all_gather_async(matrix(3, 4), 0))),
         other("another rank", "all_gather of (3,) along axis 0", CALL(g.all_gather_async(Tensor({3}), 0))),
         other("another axis", "all_gather of (3, 2) along axis 1", CALL(g.all_gather_async(matrix(), 1)))}),
    async(
        "all_gather, kept",
        Form("all_gather of (3, 2) along axis 1", CALL(g.all_gather_async(std::as_const(kept()), 1))),
        {other("another shape", "all_gather of (4, 2) along axis 1", CALL(g.all_gather_async(matrix(4), 1))),
         other("another rank", "all_gather of (3, 2, 1) along axis 1",
               CALL(g.all_gather_async(Tensor({3, 2, 1}), 1))),
         other("another axis", "all_gather of (3, 2) along axis 0",
               CALL(g.all_gather_async(std::as_const(kept()), 0)))}),
    async("all_reduce", Form("all_reduce(sum) of (3, 2)", CALL(g.all_reduce_async(matrix(), sum))),
          {other("another shape", "all_reduce(sum) of (3, 4)", CALL(g.all_reduce_async(matrix(3, 4), sum))),
           other("another rank", "all_reduce(sum) of (6,)", CALL(g.all_reduce_async(six(), sum))),
           other("another operation", "all_reduce(avg) of (3, 2)",
                 CALL(g.all_reduce_async(matrix(), ReduceOp::avg)))}),
    async("reduce_scatter",
          Form("reduce_scatter(sum) of (3, 2) along axis 0", CALL(g.reduce_scatter_async(matrix(), sum, 0))),
          {other("another shape", "reduce_scatter(sum) of (2, 2) along axis 0",
                 CALL(g.reduce_scatter_async(matrix(2, 2), sum, 0))),
           other("another rank", "reduce_scatter(sum) of (6,) along axis 0",
                 CALL(g.reduce_scatter_async(six(), sum, 0))),
           other("another operation", "reduce_scatter(max) of (3, 2) along axis 0",
                 CALL(g.reduce_scatter_async(matrix(), ReduceOp::max, 0))),
           other("another axis", "reduce_scatter(sum) of (3, 2) along axis 1",
                 CALL(g.reduce_scatter_async(matrix(), sum, 1)))}),
    async("all_to_all",
          Form("all_to_all of (3, 2) from axis 0 to axis 1", CALL(g.all_to_all_async(matrix(), 0, 1))),
          {other("another shape", "all_to_all of (5, 2) from axis 0 to axis 1",
                 CALL(g.all_to_all_async(matrix(5), 0, 1))),
           other("another rank", "all_to_all of (3, 2, 1) from axis 0 to axis 1",
                 CALL(g.all_to_all_async(Tensor({3, 2, 1}), 0, 1))),
           other("another axis", "all_to_all of (3, 2) from axis 1 to axis 0",
                 CALL(g.all_to_all_async(matrix(), 1, 0)))}),
    async("all_to_all, counts",
          Form("all_to_all of (6,) from axis 0 to axis 0 by counts",
               CALL(g.all_to_all_async(six(), counts(g), 0))),
          {other("another rank", "all_to_all of (6, 1) from axis 0 to axis 0 by counts",
                 CALL(g.all_to_all_async(matrix(6, 1), counts(g), 0))),
           other("another axis", "all_to_all of (3, 6) from axis 1 to axis 1 by counts",
                 CALL(g.all_to_all_async(matrix(3, 6), counts(g), 1))),
           other("no counts", "all_to_all of (6,) from axis 0 to axis 0",
                 CALL(g.all_to_all_async(six(), 0, 0)))}),
    async("broadcast", Form("broadcast from device 0", CALL(g.broadcast_async(matrix(), 0))),
          {other("another root", "broadcast from device 2", CALL(g.broadcast_async(matrix(), 2)))}),
    async("send_async", Form("send_async", CALL(to_the_right(g)))),
    at_once("split", Form("split", CALL(g.split(0, 0)))),
    at_once("exchange", Form("an exchange of \"rows\"", CALL(g.exchange("rows", 3))),
            {other("another subject", "an exchange of \"columns\"", CALL(g.exchange("columns", 3)))}),
    at_once("gather", Form("a gather of \"names\"", CALL(g.gather("names", "device"))),
            {other("another subject", "a gather of \"colours\"", CALL(g.gather("colours", "red")))}, false),
    at_once(
        "print_in_device_order",
        Form("a gather of \"print_in_device_order\"", CALL(print_in_device_order(g, page(), "x", kept()))),
        {}, false)};

}  // namespace

const std::vector<CollectiveCall>& collective_calls() {
  return all_calls;
}

const Form& another_call(const CollectiveCall& call) {
  static const Form barrier("barrier", CALL(g.barrier()));
  static const Form product("all_reduce(prod) of (2,)",
                            CALL(g.all_reduce_async(Tensor({2}), ReduceOp::prod)));
  return call.name == "barrier" ? product : barrier;
}

std::vector<OtherSequence> other_sequences(const CollectiveCall& call) {
  const Form& mine = call.form;
  const Form& other = another_call(call);
  const auto before_other = [&](const char* class_, int culprit, const Form& its, const Form& theirs,
                                int times_of_it, int times_of_others) {
    return OtherSequence{class_, culprit, its, theirs,
                         [&mine, &other, culprit, times_of_it, times_of_others] {
                           for (int i = 0; i < (me() == culprit ? times_of_it : times_of_others); ++i)
                             mine.make();
                           other.make();
                         }};
  };
  return {{"another call on one device", odd, other, mine, [&] { (me() == odd ? other : mine).make(); }},
          before_other("left out in the middle", odd, other, mine, 0, 1),
          before_other("one too many in the middle", odd, mine, other, 2, 1),
          before_other("on device 0 alone, in the middle", 0, mine, other, 1, 0),
          {"two calls in another order", odd, other, mine, [&] {
             for (const Form* next : me() == odd ? std::vector{&other, &mine} : std::vector{&mine, &other})
               next->make();
           }}};
}

}  // namespace shard::testing
