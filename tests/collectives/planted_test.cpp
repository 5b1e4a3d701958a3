// The mistakes that tests plant have the effects that planted_faults.hpp describes. Otherwise a test that
// "has been seen to fail" would prove nothing.

#include <numeric>

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"
#include "tests/harness/planted_faults.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8});

namespace {

/// Plants a mistake, and removes it in the destructor.
class Planted {
 public:
  explicit Planted(const Faults& faults) { plant_faults(faults); }
  ~Planted() { plant_faults({}); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
};

Planted without_call(std::int64_t k) {
  Faults faults;
  faults.leave_out_call = k;
  return Planted(faults);
}

/// A collective on a (6, 5) tensor.
struct Call {
  std::string name;
  std::function<Tensor(Tensor)> make;
};
const std::vector<Call> collectives = {
    {"all_reduce", [](Tensor t) { return engine().all_reduce(std::move(t)); }},
    {"reduce_scatter", [](Tensor t) { return engine().reduce_scatter(std::move(t)); }},
    {"all_gather", [](Tensor t) { return engine().all_gather(std::move(t), 1); }},
    {"all_to_all", [](Tensor t) { return engine().all_to_all(std::move(t), 0, 1); }},
    {"broadcast", [](Tensor t) { return engine().broadcast(std::move(t), 0); }}};

HostTensor mine() {
  return integers({6, 5}, me());
}

std::vector<Tensor> results_of_all() {
  std::vector<Tensor> results;
  for (const Call& call : collectives) results.push_back(call.make(to_device(mine())));
  return results;
}

HostTensor zeros(const Shape& shape) {
  return tabulate(shape, [](const Place&) { return 0.0F; });
}

}  // namespace

TEST_CASE("a collective that is left out returns what it was given, or zeros; no other call changes") {
  const std::vector<Tensor> right_results = results_of_all();
  for (std::size_t k = 0; k < collectives.size(); ++k) {
    const Planted planted = without_call(static_cast<std::int64_t>(k));
    const std::vector<Tensor> results = results_of_all();
    for (std::size_t i = 0; i < results.size(); ++i) {
      CAPTURE(collectives[k].name, collectives[i].name);
      const bool is_missed = collectives[k].name == "broadcast" && me() != 0;
      const HostTensor left = is_missed ? zeros({6, 5}) : mine();
      CHECK(difference(results[i], i == k ? left : to_host(right_results[i])) == "");
    }
    CHECK(calls_made() == static_cast<std::int64_t>(collectives.size()));
  }
}

namespace {

/// The number of elements in which two tensors of one shape differ, and by how much: none, or one.
struct Change {
  int places = 0;
  float by = 0;
};
Change change(const Tensor& changed, const Tensor& original) {
  REQUIRE(changed.shape() == original.shape());
  const std::vector<float> a = changed.to_host(), b = original.to_host();
  Change found;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) found = {found.places + 1, a[i] - b[i]};
  return found;
}

Index total(Index mine) {
  const std::vector<Index> all = group().exchange("a number", mine);
  return std::accumulate(all.begin(), all.end(), Index{0});
}

/// Corrupts each message that each device sends in `action`, one at a time. Calls `check` with the change of
/// this device's result, and the number of devices whose result has changed.
void corrupt_each_message(const std::function<Tensor()>& action,
                          const std::function<void(const Change&, Index devices_changed)>& check) {
  plant_faults({});
  const Tensor original = action();
  const std::vector<Index> sent = group().exchange("messages", messages_sent());
  for (int culprit = 0; culprit < devices(); ++culprit)
    for (Index k = 0; k <= sent[static_cast<std::size_t>(culprit)]; ++k) {
      CAPTURE(culprit, k);
      Faults faults;
      faults.corrupt_message = k;
      faults.corrupting_device = culprit;
      const Planted planted(faults);
      const Change mine = change(action(), original);
      const Index changed = total(mine.places > 0 ? 1 : 0);
      const bool is_sent = k < sent[static_cast<std::size_t>(culprit)];
      CHECK((changed > 0) == is_sent);  // the last message is followed by none
      if (mine.places > 0) CHECK((mine.places == 1 && mine.by == 1));
      if (is_sent) check(mine, changed);
    }
}

}  // namespace

// That a fault is planted at all, faults_test.cpp sees: each must be noticed.
TEST_CASE("a corrupted message changes one element of one device, where it is not passed on") {
  const auto check_one = [](const Change&, Index changed) { CHECK(changed == 1); };
  corrupt_each_message(
      [] {
        return engine().all_to_all(to_device(integers({9, 3}, me())), 0, 1);
      },
      check_one);
  corrupt_each_message([] { return engine().reduce_scatter(to_device(integers({9, 3}, me()))); }, check_one);
  if (devices() > 1)
    corrupt_each_message([] { return pass_on(to_device(integers({2, 3}, me()))); }, check_one);
  corrupt_each_message(
      [] {
        const Tensor src = to_device(integers({2, 3}, me()));
        Tensor dst({2, 3});
        engine().send_async(src, dst, right()).wait();
        return dst;
      },
      check_one);
}
