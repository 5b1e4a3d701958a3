/// The decoder on one device by itself: its gradients are finite differences, its problems leave nothing out,
/// and integer optimizers count in its units.

#include "engine/workloads/decoder.hpp"

#include <filesystem>
#include <set>

#include "08_decoder/single.hpp"
#include "engine/files/file_checkpoint.hpp"
#include "engine/host_checkpoint.hpp"
#include "engine/program/training_step.hpp"
#include "engine/workloads/chosen_experts.hpp"
#include "engine/workloads/exact_values.hpp"
#include "tests/equivalence/decoder_reference.hpp"
#include "tests/equivalence/finite_differences.hpp"
#include "tests/equivalence/liveness.hpp"

namespace shard::testing {

using decoders::SingleDecoder;

namespace {

DecoderModel tiny_model() {
  DecoderModel m;
  m.num_blocks = 2, m.model_dim = 4, m.heads = 4, m.key_heads = 2, m.head_dim = 2, m.hidden_dim = 3;
  m.vocabulary = 5, m.window = 3;
  m.how = Arithmetic::real(m.head_dim);
  return m;
}
DecoderModel tiny_mixture() {
  DecoderModel m = tiny_model();
  m.experts = 3, m.top_k = 2, m.is_tied = true;
  return m;
}

/// Of a block's choices, one sequence on each device.
bool is_live(const std::vector<Index>& chosen, int devices, Index experts) {
  std::vector<std::vector<Index>> tokens(static_cast<std::size_t>(devices));  // of each, for each device
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

TEST_CASE("decoder: the gradients of the single engine are the definition's finite differences") {
  for (const DecoderModel& model : {tiny_model(), tiny_mixture()}) {
    SingleDecoder engine(group(), model);
    check_gradients<SampledDecoder>(engine, model, AtPoint(Decoder(model, 4)));
  }
}

TEST_CASE("decoder: in exact problems, 90 % or more of each gradient's elements that are reached are not 0") {
  for (const ExactProblem& problem : problems_of(decoder())) {
    const DecoderModel& model = as_decoder(*problem.workload).model();
    const Tensor input = Tensor::from_host(problem.input.shape, problem.input.values);
    const std::vector<Index> ids = Tokens::read(input, model.vocabulary).ids;
    check_live(problem, model.is_tied ? std::nullopt : std::optional(ids));
  }
}

TEST_CASE(
    "decoder: in live problems, every expert has tokens of every device, and some two devices have other "
    "numbers of tokens for each other") {  // with the same ones, it would not matter whether they tell
  for (const auto& [devices, blocks] : {std::pair{2, 1}, {2, 2}, {3, 1}, {3, 2}, {3, 3}, {5, 1}}) {
    const auto accepts = [blocks = blocks](const Workload& w) {
      return as_decoder(w).model().is_mixture() && w.num_layers() >= blocks;
    };
    const ExactProblem problem = decoder(usual_experts).live_problems(devices, accepts).at(0);
    CAPTURE(devices, problem.workload->describe());
    const auto engine = problem.workload->unsharded(group());
    engine->load_checkpoint(*host_checkpoint(problem.weights, "test"));
    run_step(*engine, problem.input, problem.output_grad);
    const auto step = problem.workload->step_data(*engine);
    for (const std::vector<Index>& chosen : dynamic_cast<const ChosenExperts&>(*step).of_block)
      CHECK(is_live(chosen, devices, as_decoder(*problem.workload).model().experts));
  }
}

TEST_CASE("decoder: integer optimizers count gradients in the network's units, and keep momenta of them") {
  const TestCase c = decoder().cases([](const Workload&) { return true; })[0];
  const ExactProblem start = c.workload->exact_problem(c.batch, 4);
  CHECK(start.workload->gradient_unit() < 1);
  CHECK(c.workload->gradient_unit() == start.workload->gradient_unit());  // with real numbers, too
  const Variant variant;
  Arguments arguments;
  arguments.optimizer = "integer";
  const std::unique_ptr<Optimizer> named = optimizer_of({group(), variant, *start.workload, arguments});
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
      if (optimizer == named.get())
        integer_step(problem, expected);
      else
        integer_momentum_step(problem, expected, momenta);
      for (const Trainable& t : engine.trainable()) {
        CAPTURE(t.name, step);
        CHECK(t.parameter.tensor->to_host() == problem.weights.at(t.name).values);
      }
    }
  }
}

namespace {

using HostTensors = std::map<std::string, HostTensor>;

/// A file of one of the exact problems that the suite for foreign implementations has (golden/manifest.json).
HostTensors golden(const std::string& problem, const std::string& file) {
  const std::filesystem::path root =
      std::filesystem::path(Characters::default_path()).parent_path() / "../..";
  const auto stored =
      open_checkpoint((root / "tests/equivalence/golden" / problem / (file + ".safetensors")).string());
  HostTensors all;
  for (const std::string& name : stored->names()) {
    const Shape shape = stored->shape(name);
    all[name] = {shape, stored->read(name, 0, 0, shape[0])};
  }
  return all;
}

/// What its params and batch say: ids and labels side by side, and the gradient of each token's loss.
ExactProblem golden_problem(const std::string& name, Index window, Index head_dim) {
  const HostTensors weights = golden(name, "params"), batch = golden(name, "batch");
  DecoderModel m = decoder_of(*host_checkpoint(weights, name), head_dim);
  if (window > 0) m.window = window;
  m.top_k = m.is_mixture() ? 2 : 0, m.epsilon = 0x1p-7F;
  m.how = exact::grid_of(m.model_dim, m.head_dim);
  const HostTensor &ids = batch.at("input_ids"), &labels = batch.at("labels");
  const Index sequences = ids.shape[0], length = ids.shape[1];
  HostTensor input{{sequences, 2 * length}, {}};
  for (Index b = 0; b < sequences; ++b)
    for (const HostTensor* of : {&ids, &labels})
      input.values.insert(input.values.end(), of->values.begin() + b * length,
                          of->values.begin() + (b + 1) * length);
  const HostTensor dloss{{sequences * length, 1}, batch.at("losses_grad").values};
  return {std::make_shared<Decoder>(m, length), input, dloss, weights};
}

}  // namespace

TEST_CASE("decoder: the suite's exact problems come out bit for bit") {
  for (const auto& [name, window, head_dim] :
       {std::tuple("decoder-exact-plain", 0, 2), std::tuple("decoder-exact-window-tied", 3, 2),
        std::tuple("decoder-exact-experts", 0, 4)}) {
    const ExactProblem problem = golden_problem(name, window, head_dim);
    const Solution solution = solve(problem, group());
    HostTensors expected = golden(name, "expected");
    const std::vector<float> losses = expected.extract("losses").mapped().values;
    for (const auto& [parameter, gradient] : expected) {
      CAPTURE(name, parameter);
      CHECK(solution.at(parameter).values == gradient.values);
    }
    CHECK(solution.at("output").values == losses);
    CHECK(expected.size() + 1 == solution.size());
  }
}

}  // namespace shard::testing
