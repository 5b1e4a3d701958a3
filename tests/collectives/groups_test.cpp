// Groups made by `split`: their members and order, several in use at the same time, their ledgers, and
// objects that wrap a communicator or belong to a device.

#include <algorithm>

#include "engine/device/books/collective_costs.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/communicator/checked_communicator.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {1, 2, 3, 4, 5, 8},
        .on_cuda = {1, 2, 3, 4});

namespace {

/// The even or the odd devices, in reverse order.
std::unique_ptr<Communicator> my_half() {
  return group().split(me() % 2, -me());
}

/// The members of that group, as places in the group under test.
std::vector<int> places_of_my_half() {
  std::vector<int> places;
  for (int d = devices() - 1; d >= 0; --d)
    if (d % 2 == me() % 2) places.push_back(d);
  return places;
}

HostTensor sum_over(const std::vector<int>& places, const Shape& shape) {
  std::vector<HostTensor> addends;
  for (int d : places) addends.push_back(integers(shape, d));
  return reduced(addends, ReduceOp::sum);
}

}  // namespace

TEST_CASE("split: members by color, in the order of keys, and of equal keys in the group's") {
  const std::unique_ptr<Communicator> half = my_half();
  const std::vector<int> places = places_of_my_half();
  std::vector<int> ids;
  for (int d : places) ids.push_back(id(d));
  CHECK(half->members() == ids);
  CHECK(half->num_devices() == static_cast<int>(places.size()));
  CHECK(half->members()[static_cast<std::size_t>(half->device_id())] == this_device());
  CHECK(half->group_id() != group().group_id());
  const std::unique_ptr<Communicator> same_order = group().split(7, 0);
  CHECK(same_order->members() == group().members());
  CHECK(same_order->group_id() != half->group_id());
}

TEST_CASE("split: whoever passes no color is in no group") {
  const std::unique_ptr<Communicator> others =
      group().split(me() == 0 ? std::nullopt : std::optional<Index>(1), 0);
  CHECK((others == nullptr) == (me() == 0));
  if (others != nullptr) CHECK(others->num_devices() == devices() - 1);
}

TEST_CASE("split: a part of a part") {
  const std::unique_ptr<Communicator> half = my_half();
  const std::unique_ptr<Communicator> alone = half->split(half->device_id(), 0);
  CHECK(alone->members() == std::vector<int>{this_device()});
  CHECK(difference(alone->all_reduce_async(to_device(integers({3}, me())), ReduceOp::sum).get(),
                   integers({3}, me())) == "");
}

TEST_CASE("collectives of several groups are in flight at once, and are waited for in any order") {
  const std::unique_ptr<Communicator> half = my_half();
  const Shape shape = {7, 3};
  for (bool half_first : {true, false}) {
    Future<Tensor> of_half = half->all_reduce_async(to_device(integers(shape, me())), ReduceOp::sum);
    Future<Tensor> of_all = group().all_gather_async(to_device(integers(shape, me())), 0);
    Future<Tensor> again = half->all_gather_async(to_device(integers({1, 2}, me())), 0);
    std::vector<HostTensor> slices;
    for (int d : places_of_my_half()) slices.push_back(integers({1, 2}, d));
    if (half_first) CHECK(difference(of_half.get(), sum_over(places_of_my_half(), shape)) == "");
    CHECK(difference(again.get(), joined(slices, 0)) == "");
    CHECK(difference(of_all.get(), joined(on_each(integers, shape), 0)) == "");
    if (!half_first) CHECK(difference(of_half.get(), sum_over(places_of_my_half(), shape)) == "");
  }
}

TEST_CASE("messages of two groups between the same devices do not mix") {
  if (devices() == 1) return;
  const std::unique_ptr<Communicator> reversed = group().split(0, -me());
  const int first = devices() - 1;  // the place, in the reversed group, of the first device of the group
  if (me() == 0) {
    Future<> later = reversed->post_send(first - 1, to_device(integers({2}, 5)));
    Future<> sooner = group().post_send(1, to_device(integers({4}, 6)));
    sooner.wait(), later.wait();
  }
  if (me() == 1) {
    CHECK(difference(group().receive(0), integers({4}, 6)) == "");
    CHECK(difference(reversed->receive(first), integers({2}, 5)) == "");
  }
}

TEST_CASE("the ledger books each group's traffic by itself") {
  const std::unique_ptr<Communicator> half = my_half();
  ledger().reset();
  half->all_reduce_async(Tensor({9, 5}), ReduceOp::sum).get();
  group().all_reduce_async(Tensor({4}), ReduceOp::sum).get();
  const Traffic of_half = ring_all_reduce(45, half->num_devices(), half->device_id());
  const Traffic of_all = ring_all_reduce(4, devices(), me());
  CHECK(ledger().traffic_in(half->group_id()) == of_half);
  CHECK(ledger().traffic_in(group().group_id(), Collective::all_reduce) == of_all);
  CHECK(ledger().traffic() == of_half + of_all);
}

TEST_CASE("an argument that does not fit is refused in the name of the group") {
  const std::unique_ptr<Communicator> half = my_half();
  const Refusal refused = refusal([&] { (void)half->broadcast_async(Tensor({2}), half->num_devices()); });
  CHECK(refused.code == static_cast<int>(Code::argument));
  CHECK_THAT(refused.message, contains("broadcast in group " + name_of_group(*half)));
}

TEST_CASE("layouts on two groups do not meet in one function") {
  const std::unique_ptr<Communicator> half = my_half();
  const Replicated here(group(), Tensor({2, 2})), there(*half, Tensor({2, 2}));
  const Refusal refused = refusal([&] { matmul(here, there); });
  CHECK(refused.code == static_cast<int>(Code::argument));
  CHECK_THAT(refused.message, contains("operands on one group of devices"));
}

TEST_CASE("a part of a checked group is checked") {
  const CheckedRun checked;
  const std::unique_ptr<Communicator> half = my_half();
  const bool is_last = half->device_id() + 1 == half->num_devices();
  const Refusal refused = refusal([&] { Replicated(*half, to_device(integers({3}, is_last ? 1 : 2))); });
  CHECK((refused.code == static_cast<int>(Code::mismatch)) == (half->num_devices() > 1));
}

TEST_CASE("an observer hears of what the device computes and holds, while it lives") {
  struct Heard : Observer {
    std::vector<std::string> all;
    void product(Operand a, Operand b, const Tensor& c, bool accumulates) override {
      all.push_back("product " + to_string(a.tensor->shape()) + to_string(b.tensor->shape()) +
                    to_string(c.shape()) + (accumulates ? " +" : ""));
    }
    void elementwise(std::string_view function, Index elements) override {
      all.push_back(std::string(function) + " " + std::to_string(elements));
    }
    void allocated(Purpose, Index bytes) override { all.push_back("allocated " + std::to_string(bytes)); }
    void released(Purpose, Index bytes) override { all.push_back("released " + std::to_string(bytes)); }
  };
  const Tensor a({2, 3}), b({3, 4});
  Heard heard;
  {
    const Observation observation(heard);
    Tensor c = matmul(a, b);
    matmul_accumulate(a, b, c);
    c.charge_to(Purpose::gradients);
    relu(std::move(c));
  }
  relu(b);
  const std::vector<std::string> expected = {"allocated 32",
                                             "product (2, 3)(3, 4)(2, 4)",
                                             "product (2, 3)(3, 4)(2, 4) +",
                                             "released 32",
                                             "allocated 32",
                                             "relu 8",
                                             "released 32"};
  CHECK(heard.all == expected);
}
