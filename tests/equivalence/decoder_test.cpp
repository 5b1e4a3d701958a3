/// The decoder on one device: exact problems have few gradients of 0, and integer optimizers count in its units.

#include "engine/workloads/decoder/decoder.hpp"

#include <set>

#include "08_decoder/single.hpp"
#include "08_decoder/written_out.hpp"
#include "engine/program/step/step.hpp"
#include "engine/weights/checkpoint.hpp"
#include "tests/equivalence/equivalence.hpp"
#include "tests/equivalence/liveness.hpp"

namespace shard::testing {

using decoders::SingleDecoder;

namespace {

/// Whether, with a sequence on each device, every expert has tokens of every device, and two devices send each
/// other different numbers of tokens. `chosen`: a block's choices.
bool is_live(const std::vector<Index>& chosen, int devices, Index experts) {
  std::vector<std::vector<Index>> tokens(static_cast<std::size_t>(devices));  // [from][to]
  std::set<std::pair<std::size_t, Index>> used;                               // device and expert
  for (std::vector<Index>& of_device : tokens) of_device.resize(tokens.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::size_t device = i / (chosen.size() / tokens.size());
    ++tokens[device][static_cast<std::size_t>(part_with(experts, devices, chosen[i]))];
    used.emplace(device, chosen[i]);
  }
  bool is_even = true;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) is_even = is_even && tokens[i][j] == tokens[j][i];
  return !is_even && static_cast<Index>(used.size()) == devices * experts;
}

}  // namespace

TEST_CASE("decoder: in exact problems, 90 % or more of each gradient's elements that are reached are not 0") {
  for (const ExactProblem& problem : problems_of(decoder())) {
    const DecoderModel& model = as_decoder(*problem.workload).model();
    const Tensor input = Tensor::from_host(problem.input.shape, problem.input.values);
    const Tokens tokens = Tokens::read(input, model.vocabulary);
    const std::vector<Index> ids(tokens.ids.begin(), tokens.ids.end());
    check_live(problem, model.is_tied ? std::nullopt : std::optional(ids));
  }
}

TEST_CASE(
    "decoder: in live problems, every expert has tokens of every device, and some two devices have other "
    "numbers of tokens for each other") {  // with equal numbers, devices need not exchange them
  for (const auto& [devices, blocks] : {std::pair{2, 1}, {2, 2}, {3, 1}, {3, 2}, {3, 3}, {5, 1}}) {
    const auto accepts = [blocks = blocks](const Workload& w) {
      return as_decoder(w).model().is_mixture() && w.num_layers() >= blocks;
    };
    const ExactProblem problem = live_problems_of(decoder(usual_experts), devices, accepts).at(0);
    CAPTURE(devices, problem.workload->describe());
    const auto engine = problem.workload->unsharded(group());
    engine->load_checkpoint(*host_checkpoint(problem.weights, "test"));
    run_step(*engine, problem.input, problem.output_grad);
    const auto step = problem.workload->step_data(*engine);
    for (const std::vector<Index>& chosen : dynamic_cast<const ChosenExperts&>(*step).of_block)
      CHECK(is_live(chosen, devices, as_decoder(*problem.workload).model().experts));
  }
}

TEST_CASE("decoder: the file that writes it out returns the bits of single") {
  int networks = 0;
  for (const ExactProblem& problem : problems_of(decoder())) {
    const DecoderModel& model = as_decoder(*problem.workload).model();
    if (model.is_mixture() || model.has_bias || model.is_tied) continue;
    CAPTURE(problem.workload->describe());
    decoders::WrittenOut engine(group(), model);
    engine.load_checkpoint(*host_checkpoint(problem.weights, "test"));
    const Results results = run_step(engine, problem.input, problem.output_grad);
    for (const Comparison& c :
         compare_all(group(), results.output, results.gradients, solve(problem, group()))) {
      CAPTURE(c.first_difference);
      CHECK(c.is_equal());
    }
    ++networks;
  }
  CHECK(networks > 0);
}

TEST_CASE("decoder: integer optimizers count gradients in the network's units, and keep momenta of them") {
  const TestCase c = cases_of(decoder(), [](const Workload&) { return true; })[0];
  const ExactProblem start = c.workload->exact_problem(c.batch, 4);
  CHECK(start.workload->gradient_unit() < 1);
  CHECK(c.workload->gradient_unit() == start.workload->gradient_unit());  // with real numbers, too
  const Variant variant;
  const std::unique_ptr<Optimizer> named =
      optimizer_of({group(), variant, *start.workload, {}, {.optimizer = "integer"}});
  IntegerMomentum with_momentum = integer_optimizer<IntegerMomentum>(start);
  for (Optimizer* optimizer : {named.get(), static_cast<Optimizer*>(&with_momentum)}) {
    ExactProblem problem = start;
    std::map<std::string, std::vector<float>> momenta;
    SingleDecoder engine(group(), as_decoder(*problem.workload).model());
    engine.load_checkpoint(*host_checkpoint(problem.weights, "test"));
    for (int step = 0; step < 3; ++step) {
      const Results results = run_step(engine, problem.input, problem.output_grad);
      optimizer->step(engine, results.gradients);
      const Solution expected = solve(problem, group());
      integer_step(problem, expected, optimizer == named.get() ? nullptr : &momenta);
      for (const Trainable& t : engine.trainable()) {
        CAPTURE(t.name, step);
        CHECK(t.parameter.tensor->to_host() == problem.weights.at(t.name).values);
      }
    }
  }
}

}  // namespace shard::testing
