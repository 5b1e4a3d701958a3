// Asynchronous calls: several in flight, waited for in any order, during computation; and dropped futures.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <numeric>
#include <stdexcept>

#include "engine/device/books/ledger.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {1, 2, 3, 4, 5, 8},
        .on_cuda = {1, 2, 3, 4});

namespace {

Range part_of_mine(Index extent) {
  return part(extent, devices(), me());
}

struct InFlight {
  Future<Tensor> future;
  HostTensor expected;
};

std::vector<InFlight> start_one_of_each(int seed) {
  const std::vector<HostTensor> inputs = on_each(integers, {7, 6}, seed);
  const HostTensor sum = reduced(inputs, ReduceOp::sum);
  std::vector<HostTensor> columns;
  for (const HostTensor& input : inputs) columns.push_back(sliced(input, 1, part_of_mine(6)));
  std::vector<Index> all_to_last(static_cast<std::size_t>(devices()), 0);
  all_to_last.back() = 7;
  std::vector<InFlight> calls;
  auto start = [&](Future<Tensor> future, HostTensor expected) {
    calls.push_back({std::move(future), std::move(expected)});
  };
  auto argument = [&] { return to_device(mine(inputs)); };
  start(group().all_reduce_async(argument(), ReduceOp::sum), sum);
  start(group().all_gather_async(argument(), 0), joined(inputs, 0));
  start(group().reduce_scatter_async(argument(), ReduceOp::sum, 0), sliced(sum, 0, part_of_mine(7)));
  start(group().broadcast_async(argument(), devices() - 1), inputs.back());
  start(group().all_to_all_async(argument(), 1, 0), joined(columns, 0));
  start(group().all_to_all_async(argument(), all_to_last, 0),
        me() == devices() - 1 ? joined(inputs, 0) : HostTensor{{0, 6}, {}});
  return calls;
}

void check_results(std::vector<InFlight>& calls) {
  for (InFlight& call : calls) CHECK(difference(call.future.get(), call.expected) == "");
}

/// The text that `action` writes to standard error.
std::string standard_error_of(const std::function<void()>& action) {
  std::string path = "/tmp/shardbook-stderr-XXXXXX";
  const int file = mkstemp(path.data());
  static const int before = dup(STDERR_FILENO);  // devices of one process take turns within this function
  std::fflush(stderr);
  dup2(file, STDERR_FILENO);
  action();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(file);
  std::ifstream written(path);
  std::string text{std::istreambuf_iterator<char>(written), {}};
  unlink(path.c_str());
  return text;
}

/// The number of this device's next call: the one behind a call that is made and dropped here.
int next_call_number() {
  const std::string line = standard_error_of([] { (void)group().all_gather_async(Tensor({1}), 0); });
  return std::stoi(line.substr(line.find("(call ") + 6)) + 1;
}

/// The message about a dropped future. It names the group, if that is a part of all devices.
std::string dropped_line(const std::string& call, int number, int line) {
  const std::string part = name_of_group(group());
  return fmt::format(
      "device {}: the future of {}{} (call {} at tests/collectives/async_test.cpp:{}) was "
      "dropped without waiting for it\n",
      this_device(), call, part.empty() ? "" : " in group " + part, number, line);
}

}  // namespace

TEST_CASE("calls in flight can be waited for in any order, another one on each device") {
  constexpr int calls = 6;
  for (int first = 0; first < calls; ++first) {
    std::vector<InFlight> in_flight = start_one_of_each(first);
    REQUIRE(in_flight.size() == calls);
    for (int i = 0; i < calls; ++i) {
      const int turn = (first + (me() % 2 == 0 ? i : calls - i) + me()) % calls;
      CAPTURE(first, turn);
      InFlight& call = in_flight[static_cast<std::size_t>(turn)];
      CHECK(difference(call.future.get(), call.expected) == "");
    }
  }
}

TEST_CASE("products are computed while calls are in flight") {
  const HostTensor a = integers({31, 17}, me()), b = integers({17, 23}, me(), 1);
  const Tensor left = to_device(a), right = to_device(b);
  const HostTensor expected = product(a, b);
  std::vector<InFlight> in_flight = start_one_of_each(3);
  for (InFlight& call : in_flight) {
    CHECK(difference(matmul(left, right), expected) == "");
    CHECK(difference(call.future.get(), call.expected) == "");
  }
}

TEST_CASE("products alone move calls along") {
  ledger().reset();
  Future<Tensor> future = group().all_gather_async(to_device(integers({100'000}, me())), 0);
  const Tensor matrix({2, 2});
  const auto start = std::chrono::steady_clock::now();
  while (ledger().traffic(Collective::all_gather).messages < devices() - 1) {
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) break;  // they would never end
    matmul(matrix, matrix);
  }
  CHECK(ledger().traffic(Collective::all_gather).messages == devices() - 1);
  CHECK(future.get().size() == 100'000 * devices());
}

TEST_CASE("what is computed and freed while calls wait for their peers does not meet their memory") {
  const Index most = 7 * devices();
  const std::vector<Index> rows(static_cast<std::size_t>(most), 0);
  for (int first = 0; first < devices(); ++first) {
    std::vector<InFlight> in_flight;
    if (me() == first) {
      in_flight = start_one_of_each(first);
      for (Index size = 1; size <= most; ++size)
        gather_rows(Tensor({1, 6}), std::span(rows).first(static_cast<std::size_t>(size)));
    }
    group().gather("a meeting", "");  // does not advance a call
    if (me() != first) in_flight = start_one_of_each(first);
    check_results(in_flight);
  }
}

TEST_CASE("ready turns true by asking, whether others ask or wait") {
  for (int poller = 0; poller < devices(); ++poller) {
    std::vector<InFlight> in_flight = start_one_of_each(poller);
    if (me() == poller)
      for (InFlight& call : in_flight)
        while (!call.future.ready()) continue;
    check_results(in_flight);
    for (InFlight& call : in_flight) CHECK(call.future.ready());
  }
}

TEST_CASE("synchronize returns when every call is done, and blocking calls come after those in flight") {
  for (const bool blocks : {false, true}) {
    CAPTURE(blocks);
    std::vector<InFlight> in_flight = start_one_of_each(5);
    blocks ? group().barrier() : group().synchronize();
    for (InFlight& call : in_flight) CHECK(call.future.ready());
    check_results(in_flight);
  }
}

TEST_CASE("waiting twice is harmless, and then chains") {
  std::vector<InFlight> in_flight = start_one_of_each(7);
  check_results(in_flight);
  for (InFlight& call : in_flight) CHECK(call.future.get().size() == 0);
  Future<Index> size = group().all_gather_async(Tensor({3}), 0).then([](Tensor t) { return t.size(); });
  CHECK(std::move(size).then([](Index i) { return i + 1; }).get() == 3 * devices() + 1);
  const Tensor src({2});
  Tensor dst({2});
  Future<> sent = group().send_async(src, dst, {});
  sent.wait();
  sent.wait();
  CHECK(sent.ready());
}

TEST_CASE("a future that ends without waiting is reported, and its call is made all the same") {
  const Tensor source = to_device(integers({5}, me()));
  Tensor dst({5});
  const int first = next_call_number();
  int line = __LINE__ + 1;
  auto reduce = [&] { (void)group().all_reduce_async(Tensor({3}), ReduceOp::sum); };
  CHECK(standard_error_of(reduce) == dropped_line("all_reduce", first, line));
  line = __LINE__ + 1;
  auto send = [&] { (void)group().send_async(source, dst, (me() + 1) % devices()); };
  CHECK(standard_error_of(send) == dropped_line("send_async", first + 1, line));
  group().synchronize();
  CHECK(difference(dst, integers({5}, (me() + devices() - 1) % devices())) == "");
}

TEST_CASE("a dropped future is reported even if it is done, passed on, or replaced by another one") {
  const int first = next_call_number();
  int line = __LINE__ + 1;
  Future<Tensor> future = group().all_gather_async(Tensor({1}), 0);
  while (!future.ready()) continue;
  CHECK(standard_error_of([&] { Future<Tensor> taken = std::move(future); }) ==
        dropped_line("all_gather", first, line));
  line = __LINE__ + 1;
  Future<Tensor> other = group().broadcast_async(Tensor({1}), 0);
  CHECK(standard_error_of([&] { (void)std::move(other).then([](Tensor) {}); }) ==
        dropped_line("broadcast", first + 1, line));
  line = __LINE__ + 1;
  Future<Tensor> first_of_two = group().all_gather_async(Tensor({1}), 0);
  CHECK(standard_error_of([&] { first_of_two = group().all_gather_async(Tensor({2}), 0); }) ==
        dropped_line("all_gather", first + 2, line));
  CHECK(first_of_two.get().size() == 2 * devices());
}

TEST_CASE("a future is not reported when it was waited for, moved from, or given up for an exception") {
  CHECK(standard_error_of([] {
          Future<Tensor> waited = group().all_gather_async(Tensor({1}), 0);
          Future<Tensor> moved = std::move(waited);
          moved.get();
          try {
            Future<Tensor> given_up = group().all_gather_async(Tensor({1}), 0);
            throw std::runtime_error("on purpose");
          } catch (const std::runtime_error&) {
          }
          group().synchronize();
        }) == "");
}

TEST_CASE("what a reduction holds from its start until somebody waits is no matter of timing") {
  const Shape shape = {7, 6};
  const Index whole = num_elements(shape) * 4;
  const Index largest = devices() == 1 ? 0 : whole / 7 * part(7, devices(), 0).size();
  const Index before = ledger().live();
  {
    Future<Tensor> future = group().reduce_scatter_async(Tensor(shape), ReduceOp::sum, 0);
    CHECK(ledger().live() - before == whole + largest);
    group().synchronize();  // done, though nobody has waited for it
    CHECK(ledger().live() - before == whole + largest);
    const Tensor mine = future.get();
    CHECK(ledger().live() - before == mine.bytes());
    CHECK(mine.extent(0) == part_of_mine(7).size());
  }
  const Index chunk = devices() == 1 ? 0 : 4 * part(num_elements(shape), devices(), 0).size();
  Future<Tensor> future = group().all_reduce_async(Tensor(shape), ReduceOp::sum);
  CHECK(ledger().live() - before == whole + chunk);
  group().synchronize();
  CHECK(ledger().live() - before == whole + chunk);
  const Tensor sum = future.get();
  CHECK(ledger().live() - before == whole);
}

TEST_CASE("what a gather whose result is known holds from its start is no matter of timing") {
  for (int axis : {0, 1}) {
    CAPTURE(axis);
    Shape whole = {3, 2};
    whole[static_cast<std::size_t>(axis)] *= devices();
    const Tensor slice({3, 2});
    const Index before = ledger().live(), more = devices() * slice.bytes();
    Future<Tensor> future = group().all_gather_async(slice, axis, whole);
    CHECK(ledger().live() - before == more);
    group().synchronize();
    CHECK(ledger().live() - before == more);
    CHECK(future.get().shape() == whole);
  }
  const Tensor slice({1 + me()});  // a wrong argument of a caller
  CHECK(group().all_gather_async(slice, 0, Shape{1}).get().size() == devices() * (devices() + 1) / 2);
}

TEST_CASE("a future of no call is done, and empty") {
  CHECK(standard_error_of([] {
          Future<Tensor> none;
          CHECK(none.ready());
          CHECK(none.get().size() == 0);
          none = group().all_gather_async(Tensor({1}), 0);
          CHECK(none.get().size() == devices());
        }) == "");
}
