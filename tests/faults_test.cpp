/// The tests of sharded results have been seen to fail: every call left out, and every message corrupted, in every
/// chapter and variant, is noticed by the exact comparison. Built once for each folder in chapters/.

#include "emu/faults.hpp"

#include "engine/random.hpp"
#include "tests/catch.hpp"
#include "tests/equivalence.hpp"

namespace shard::test {

namespace {

/// An exact problem in which everything matters on every device: positive throughout, so that no ReLU masks what went
/// wrong before it; even layers dense, so that any column of them reads every input; odd layers with two ones or more
/// in each row and column, so that sums stay exact. (A number that only a dead hidden unit reads has no influence on
/// any result, and no comparison could notice it.)
ExactProblem live_stack(const Model& model, Index batch) {
  ExactProblem problem = make_exact_problem(model, batch, 3);
  for (Index l = 0; l < model.num_layers; ++l) {
    HostTensor& w = problem.weights.at(layer_name(l));
    Index period = std::min(w.shape[0], w.shape[1]);
    for (Index i = 0; i < num_elements(w.shape); ++i) {
      Index distance = (i / w.shape[1] - i % w.shape[1] + num_elements(w.shape)) % period;
      w.values[static_cast<std::size_t>(i)] = l % 2 == 0 || distance <= 1 ? 1.0F : 0.0F;
    }
  }
  CounterRandom random(3, "positive");
  std::uint64_t i = 0;
  for (float& pixel : problem.input.values) pixel = static_cast<float>(random.integer(i++, 1, 16));
  for (float& gradient : problem.output_grad.values) gradient = static_cast<float>(random.integer(i++, 1, 2));
  return problem;
}

/// The same for whatever the chapter trains.
ExactProblem live_problem(const Case& c) {
  const Network network = this_chapter().network;
  if (!network.live_problem) return live_stack(c.model, c.batch);
  return network.live_problem(c.model.num_layers, c.options.routing, world().num_devices());
}

/// Whether, on any device, the comparison notices what was planted.
bool is_noticed(const Variant& variant, const Case& c, const ExactProblem& problem,
                const std::map<std::string, HostTensor>& expected, const emu::Faults& faults) {
  std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
  emu::plant_faults(faults);
  bool differs = false;
  try {
    Results results = run_step(*engine, problem.input, problem.output_grad);
    differs = !first_difference(compare_all(results, expected)).empty();
  } catch (const Error& error) {
    differs = error.code() == Code::internal || error.code() == Code::argument;  // a shape that no longer fits
  }
  emu::plant_faults({});
  Index devices = 0;
  for (Index d : world().exchange("noticed", differs ? 1 : 0)) devices += d;
  return devices > 0;
}

/// One run without faults: how many calls there are, and messages with content from each device.
void count(const Variant& variant, const Case& c, const ExactProblem& problem, Index& calls,
           std::vector<Index>& messages) {
  std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
  emu::plant_faults({});
  run_step(*engine, problem.input, problem.output_grad);
  calls = std::ranges::max(world().exchange("calls", emu::calls_made()));
  messages = world().exchange("messages", emu::messages_sent());
}

}  // namespace

TEST_CASE("every call left out and every message corrupted is noticed") {
  const Index n = world().num_devices();
  if (n == 1) return;  // nothing is sent
  Chapter chapter = this_chapter();
  Index planted = 0;
  for (const Variant& variant : chapter.variants)
    for (Index layers : {2, 3, 6}) {
      // All slices alike, so that a shape that no longer fits is one on every device at once.
      Case c{{layers, n, 2 * n}, 2 * n, options_of(variant).back()};
      if (variant.top_k > 0) c.options.routing.top_k = variant.top_k;
      CAPTURE(variant.name, layers);
      ExactProblem problem = live_problem(c);
      std::map<std::string, HostTensor> expected = chapter.network.solve(problem);
      CHECK_FALSE(is_noticed(variant, c, problem, expected, {}));
      Index calls = 0;
      std::vector<Index> messages;
      count(variant, c, problem, calls, messages);
      for (Index k = 0; k < calls; ++k, ++planted) {
        INFO("call " << k << " of " << calls << " left out");
        CHECK(is_noticed(variant, c, problem, expected, {k, std::nullopt, 0}));
      }
      for (int device = 0; device < n; ++device)
        for (Index k = 0; k < messages[static_cast<std::size_t>(device)]; ++k, ++planted) {
          INFO("message " << k << " of device " << device << " corrupted");
          CHECK(is_noticed(variant, c, problem, expected, {std::nullopt, k, device}));
        }
    }
  bool is_sharded = this_chapter().number != "01";
  CHECK((planted > 0) == is_sharded);
}

}  // namespace shard::test
