/// The mixture on one device by itself: its slots and files are as the text says. (unsharded_test.cpp has its results
/// and gradients.)

#include "engine/workloads/mixture/mixture.hpp"

#include "05_expert/dispatch.hpp"
#include "05_expert/router.hpp"
#include "05_expert/single_mixture.hpp"
#include "engine/weights/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

using namespace expert;

namespace {

using Weights = std::map<std::string, HostTensor>;

}  // namespace

TEST_CASE("capacity is ceil(factor k B / E), and never more than all choices") {
  CHECK(RoutingRule{1, 1.25, 0, 0}.capacity(64, 8) == 10);
  CHECK(RoutingRule{2, 1.25, 0, 0}.capacity(13, 7) == 5);  // 4.64...
  CHECK(RoutingRule{2, 1.0, 0, 0}.capacity(7, 7) == 2);
  CHECK(RoutingRule{1, 0.01, 0, 0}.capacity(64, 8) == 1);
  CHECK(RoutingRule{2, 100.0, 0, 0}.capacity(5, 3) == 10);
  CHECK(RoutingRule{2, 1e300, 0, 0}.capacity(5, 3) == 10);
  CHECK(RoutingRule{2, std::nullopt, 0, 0}.capacity(5, 3) == 10);
}

TEST_CASE("the skew lowers the logits of later experts") {
  const Tensor logits = to_device({{1, 3}, {0, 0.75F, 0.5F}});
  CHECK(choose(logits.clone(), {3, std::nullopt, 0, 0}).experts == std::vector<Index>{1, 2, 0});
  CHECK(choose(logits.clone(), {3, std::nullopt, 0, 0.5}).experts == std::vector<Index>{1, 0, 2});
}

TEST_CASE("slots go to first choices first, and among them to earlier tokens") {
  // Two devices, two experts, k = 2, three slots each. Tokens 0, 1, 2 on device 0 and 3, 4 on device 1.
  const std::vector<Index> on_0 = {0, 1, 1, 0, 0, 1};  // first and second choice of each token
  const std::vector<Index> on_1 = {0, 1, 0, 1};
  std::vector<Index> chosen = count_choices(on_0, 2, 2);
  CHECK(chosen == std::vector<Index>{2, 1, 1, 2});
  for (Index count : count_choices(on_1, 2, 2)) chosen.push_back(count);
  RoutedCounts counts = give_slots(chosen, 2, 2, 2, 3);
  // Expert 0: tokens 0, 2 and 3 first; token 4's first and token 1's second choice are dropped.
  // Expert 1: token 1 first, then the second choices of tokens 0 and 2; those of 3 and 4 are dropped.
  CHECK(counts.kept == std::vector<Index>{2, 1, 0, 2, 1, 0, 0, 0});
  Plan plan = make_plan(on_0, counts, 0);
  CHECK(plan.tokens == std::vector<Index>{0, 2, 1, 0, 2});  // expert 0: 0, 2; expert 1: 1, then 0, 2
  CHECK(plan.choices == std::vector<Index>{0, 4, 2, 1, 5});
  CHECK(plan.slots == std::vector<Index>{0, 3, 2, no_slot, 1, 4});
  CHECK(plan.experts == std::vector<Range>{{0, 2}, {2, 5}});
  CHECK(make_plan(on_1, counts, 1).slots == std::vector<Index>{0, no_slot, no_slot, no_slot});
  Route route = make_route(counts, 0);  // expert 0 lives on device 0
  CHECK(route.to == std::vector<Index>{2, 3});
  CHECK(route.from == std::vector<Index>{2, 1});
  CHECK(route.rows == std::vector<std::vector<Index>>{{0, 1, 2}});
}

TEST_CASE("what arrives lies by device, and within a device by expert") {
  // Two devices, three experts: device 0 has the first two. Device 0 sends 1, 2, 0 rows to them, device 1
  // sends 3, 1, 2.
  RoutedCounts counts{2, 1, 3, {1, 2, 0, 3, 1, 2}, {1, 2, 0, 3, 1, 2}};
  Route route = make_route(counts, 0);
  CHECK(route.rows == std::vector<std::vector<Index>>{{0, 3, 4, 5}, {1, 2, 6}});
  CHECK(route.arriving == 7);
  CHECK(make_route(counts, 1).rows == std::vector<std::vector<Index>>{{0, 1}});
  CHECK(make_route(counts, 1).to == std::vector<Index>{4, 2});
}

namespace {

std::string complaint(const Weights& parameters) {
  const Refusal refused = refusal([&] { mixture_of(*host_checkpoint(parameters, "p.safetensors")); });
  CHECK(refused.code == static_cast<int>(Code::file));
  return refused.message;
}

}  // namespace

TEST_CASE("a mixture is read from its parameters, or refused in a line that says what is wrong") {
  const HostTensor w0{{2, 3}, std::vector<float>(6)}, w1{{3, 2}, std::vector<float>(6)};
  const HostTensor router{{2, 2}, std::vector<float>(4)};
  const Weights good = {{"router/weights", router},
                        {"expert_0/layer_0/weights", w0},
                        {"expert_0/layer_1/weights", w1},
                        {"expert_1/layer_0/weights", w0},
                        {"expert_1/layer_1/weights", w1}};
  CHECK((mixture_of(*host_checkpoint(good, "")) == MixtureModel{{2, 2, 3}, 2}));
  auto with = [&](const std::string& name, const HostTensor& t) {
    Weights changed = good;
    changed[name] = t;
    return complaint(changed);
  };
  auto without = [&](const std::string& name) {
    Weights changed = good;
    changed.erase(name);
    return complaint(changed);
  };
  CHECK(without("router/weights") ==
        "p.safetensors: expected a parameter router/weights, given none of that name; there are "
        "expert_0/layer_0/weights, expert_0/layer_1/weights, expert_1/layer_0/weights, ...");
  CHECK_THAT(without("expert_1/layer_1/weights"), contains("for each of its 2 columns an expert"));
  CHECK_THAT(with("layer_0/weights", w0), contains("given 6, one of them named layer_0/weights"));
  CHECK_THAT(with("expert_2/layer_0/weights", w0), contains("one of them named expert_2/layer_0/weights"));
  CHECK(with("expert_1/layer_0/weights", w1) ==
        "p.safetensors: expert_1/layer_0/weights: expected (2, 3), given (3, 2): PyTorch stores (out, in)?");
  CHECK(with("router/weights", {{3, 2}, std::vector<float>(6)}) ==
        "p.safetensors: expert_0/layer_0/weights: expected (3, 3), given (2, 3)");
  CHECK(with("router/weights", {{2, 0}, {}}) ==
        "p.safetensors: router/weights: expected a matrix of at least 1 by 1, given (2, 0)");
  CHECK(complaint({{"router/weights", router}}) ==
        "p.safetensors: expected a parameter expert_0/layer_0/weights, given none of that name; there is "
        "router/weights");
  SingleMixture three(group(), {3, 1.0, 0.0, 0.0});
  CHECK_THROWS_AS(three.load_checkpoint(*host_checkpoint(good, "")), Error);  // top-3 of two
}

TEST_CASE("how evenly experts were used, in words") {
  ExpertBalance balance;
  balance.add({2, 1, 4, {2, 0, 0, 0, 2, 1, 1, 2}, {2, 0, 0, 0, 0, 1, 1, 2}});
  CHECK(balance.describe() ==
        "  choices for each expert, in %: 50.0 12.5 12.5 25.0   (evenly: 25.0)\n"
        "  dropped for want of capacity: 25.0 % of the choices\n"
        "  the busiest device's experts did 1.00 times the mean of all devices\n");
}

}  // namespace shard::testing
