// Mistakes in calls that all devices learn of: the code, the caller and the call, and that the devices can
// continue afterwards. misbehave.cpp has those that end the job.

#include <fmt/format.h>

#include "tests/harness/refused.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {1, 2, 3, 4, 5, 8},
        .on_cuda = {1, 2, 3, 4});

namespace {

/// Checks that an action is refused as a mismatch with these words, in one message for all devices.
void check_mismatch(const std::vector<std::string>& words, const std::function<void()>& action) {
  CAPTURE(words);
  const Refusal refused = refusal(action);
  CHECK(refused.code == static_cast<int>(Code::mismatch));
  for (const std::string& part : words) CHECK_THAT(refused.message, contains(part));
  const std::string first_line = refused.message.substr(0, refused.message.find('\n'));
  CHECK((first_line.ends_with(')') || !contains(" after ").match(first_line)));  // the last call's position
  const auto print = static_cast<Index>(std::hash<std::string>()(refused.message));
  const std::vector<Index> prints = group().exchange("the error's text", print);
  CHECK(std::ranges::count(prints, print) == devices());
}

/// Checks that the devices can continue after a mistake.
void check_going_on() {
  const std::vector<HostTensor> inputs = on_each(integers, {7, 2});
  CHECK(difference(engine().all_reduce(to_device(integers({7, 2}, me()))), reduced(inputs, ReduceOp::sum)) ==
        "");
}

/// A call, and its text in the message of a mismatch.
struct NamedCall {
  std::string text;
  std::function<void()> make;
};

Tensor zeros(Index rows, Index columns) {
  return Tensor({rows, columns});
}

std::vector<NamedCall> all_calls() {
  return {{"all_reduce(sum) of (3,)", [] { engine().all_reduce(Tensor({3})); }},
          {"all_reduce(max) of (3,)", [] { engine().all_reduce(Tensor({3}), ReduceOp::max); }},
          {"all_reduce(sum) of (4,)", [] { engine().all_reduce(Tensor({4})); }},
          {"all_reduce(sum) of (3, 1)", [] { engine().all_reduce(zeros(3, 1)); }},
          {"all_gather of (3, 2) along axis 0", [] { engine().all_gather(zeros(3, 2), 0); }},
          {"all_gather of (3, 2) along axis 1", [] { engine().all_gather(zeros(3, 2), 1); }},
          {"all_gather of (2, 3) along axis 1", [] { engine().all_gather(zeros(2, 3), 1); }},
          {"reduce_scatter(sum) of (3, 2) along axis 0",
           [] { engine().reduce_scatter(zeros(3, 2), ReduceOp::sum, 0); }},
          {"reduce_scatter(sum) of (3, 2) along axis 1",
           [] { engine().reduce_scatter(zeros(3, 2), ReduceOp::sum, 1); }},
          {"reduce_scatter(min) of (3, 2) along axis 1",
           [] { engine().reduce_scatter(zeros(3, 2), ReduceOp::min, 1); }},
          {"all_to_all of (3, 2) from axis 0 to axis 0", [] { engine().all_to_all(zeros(3, 2)); }},
          {"all_to_all of (3, 3) from axis 0 to axis 0", [] { engine().all_to_all(zeros(3, 3)); }},
          {"all_to_all of (3, 3) from axis 0 to axis 1", [] { engine().all_to_all(zeros(3, 3), 0, 1); }},
          {fmt::format("broadcast from device {}", id(0)), [] { engine().broadcast(Tensor({3}), 0); }},
          {fmt::format("broadcast from device {}", id(1)), [] { engine().broadcast(Tensor({3}), 1); }},
          {"barrier", [] { engine().barrier(); }},
          {"send_async",
           [] {
             const Tensor src({3});
             Tensor dst({3});
             engine().send_async(src, dst, {}).wait();
           }},
          {"an exchange of \"a number\"", [] { group().exchange("a number", 3); }}};
}

}  // namespace

TEST_CASE("a call that differs on one device is refused on all, naming both calls and the device") {
  if (devices() == 1) return;
  const std::vector<NamedCall> calls = all_calls();
  group().exchange("the error's text", 0);
  for (int odd : {0, devices() - 1})
    for (const NamedCall& theirs : calls)
      for (const NamedCall& of_odd : calls) {
        if (theirs.text == of_odd.text) continue;
        // An exchange is not counted.
        auto place = [](const NamedCall& call) {
          return call.text.find('"') == std::string::npos ? "call" : "after call";
        };
        check_mismatch(
            {fmt::format("\n  device {} calls {} ({} ", id(odd), of_odd.text, place(of_odd)),
             fmt::format(" {} {} ({} ", devices() == 2 ? "calls" : "call", theirs.text, place(theirs)),
             " do not make the same call after an exchange of \"the error's text\" (after call "},
            (me() == odd ? of_odd : theirs).make);
      }
  check_going_on();
}

TEST_CASE("an asynchronous mismatch is thrown where it is waited for, once") {
  if (devices() == 1) return;
  Future<Tensor> wrong = group().all_gather_async(Tensor({2, 2}), me() == 0 ? 0 : 1);
  Future<Tensor> right = group().all_gather_async(Tensor({2, 2}), 0);
  CHECK(right.get().shape() == Shape{2 * devices(), 2});
  CHECK(refusal([&] { wrong.get(); }).code == static_cast<int>(Code::mismatch));
  CHECK(refusal([&] { wrong.get(); }).code == 0);
  check_going_on();
}

TEST_CASE("without agreement a reduction is not compared, and other collectives are") {
  set_agreement(false);
  const std::vector<HostTensor> inputs = on_each(integers, {7, 2});
  CHECK(difference(engine().all_reduce(to_device(integers({7, 2}, me()))), reduced(inputs, ReduceOp::sum)) ==
        "");
  // Device 0 calls another operation, and no device is told. (With NCCL the result is then undefined.)
  const ReduceOp op = me() == 0 ? ReduceOp::max : ReduceOp::sum;
  if (!traffic_is_booked()) CHECK(refusal([&] { engine().all_reduce(Tensor({7, 2}), op); }).code == 0);
  if (devices() > 1)
    check_mismatch({"all_gather of (2,) along axis 0", "broadcast from device"}, [&] {
      if (me() == 0)
        engine().all_gather(Tensor({2}), 0);
      else
        group().broadcast_async(Tensor({2}), 0).get();
    });
  set_agreement(true);
  if (devices() > 1)
    check_mismatch({"all_reduce(max)", "all_reduce(sum)"}, [&] { engine().all_reduce(Tensor({7, 2}), op); });
  check_going_on();
}

namespace {

/// A call as an error names it: with the group, if that is a part of all devices.
std::string in_group(const std::string& call) {
  const std::string part = name_of_group(group());
  return part.empty() ? call : call + " in group " + part;
}

}  // namespace

TEST_CASE("send_async refuses two devices with one target, on every device") {
  for (int first = 0; first < devices(); ++first)
    for (int second = first + 1; second < devices(); ++second)
      for (int target : {0, devices() - 1}) {
        const Tensor src({2});
        Tensor dst({2});
        const bool names_it = me() == first || me() == second;
        check_refused(
            [&] { engine().send_async(src, dst, names_it ? std::optional(target) : std::nullopt).wait(); },
            fmt::format("device {}: {}: expected distinct targets, given device {} as the target of both {} "
                        "and {}",
                        this_device(), in_group("send_async"), id(target), id(first), id(second)),
            Code::mismatch);
      }
  check_going_on();
}
