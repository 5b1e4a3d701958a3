/// The decoder on one device by itself: its gradients are finite differences, its problems leave nothing out,
/// and integer optimizers count in its units.

#include "engine/workloads/decoder.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>

#include "08_decoder/single.hpp"
#include "engine/files/file_checkpoint.hpp"
#include "engine/host_checkpoint.hpp"
#include "engine/program/training_step.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/random.hpp"
#include "tests/equivalence/decoder_reference.hpp"
#include "tests/equivalence/equivalence.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

using decoders::SingleDecoder;

namespace {

using Weights = std::map<std::string, HostTensor>;

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

/// Uniform in ±most.
HostTensor random_tensor(const Shape& shape, const std::string& name, float most) {
  HostTensor t{shape, {}};
  const CounterRandom random(3, name);
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(most * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
  return t;
}

/// A decoder at a point, and the objective Σ loss · weight over its tokens.
struct AtPoint {
  DecoderModel model;
  Weights weights;
  HostTensor input, dloss;

  explicit AtPoint(const DecoderModel& m) : model(m) {
    const Decoder network(m, 4);
    for (const Parameter& p : network.parameters()) weights[p.name] = random_tensor(p.shape, p.name, 1);
    input = network.random_input(2, 5);
    dloss = random_tensor(network.output_shape(2), "weight of each loss", 1);
  }
};

using Definition = SampledDecoder<0>;

/// The objective by its definition, in float64.
double objective(Definition& at, const HostTensor& dloss) {
  const Definition::Matrix losses = at.forward();
  double sum = 0;
  for (std::size_t i = 0; i < dloss.values.size(); ++i) sum += losses.all[i].value() * dloss.values[i];
  return sum;
}

/// A derivative, and how far it may be from the true one.
struct Derivative {
  double value, error;
};

/// Two central differences, extrapolated to a step of 0 (Richardson). What is left of the error is below their
/// difference.
Derivative derivative_by(Definition::Number& weight, Definition& at, const HostTensor& dloss) {
  const double here = weight.value();
  auto central = [&](double step) {
    weight = here + step;
    const double above = objective(at, dloss);
    weight = here - step;
    const double slope = (above - objective(at, dloss)) / (2 * step);
    weight = here;
    return slope;
  };
  const double wide = central(0x1p-9), narrow = central(0x1p-10);
  return {(4 * narrow - wide) / 3, std::abs(wide - narrow)};
}

}  // namespace

TEST_CASE("decoder: the gradients of the single engine are the definition's finite differences") {
  for (const DecoderModel& model : {tiny_model(), tiny_mixture()}) {
    const AtPoint point(model);
    SingleDecoder engine(group(), model);
    engine.load_checkpoint(*host_checkpoint(point.weights, "test"));
    const Results results = run_step(engine, point.input, point.dloss);
    SampledDecoder<16> bounds(model, point.weights, point.input);
    bounds.forward();
    const SampledDecoder<16>::Results bounded = bounds.backward(point.dloss);
    CHECK(results.gradients.size() == point.weights.size());
    Definition definition(model, point.weights, point.input);
    for (const auto& [name, gradient] : results.gradients) {
      const std::vector<float> given = gradient.local().to_host();
      std::vector<Definition::Number>& weights = definition.weight(name).all;
      REQUIRE(given.size() == weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        CAPTURE(model.describe(), name, i);
        const Derivative expected = derivative_by(weights[i], definition, point.dloss);
        const double rounding = bounded.at(name).all[i].bound();
        CHECK(std::abs(given[i] - expected.value) <= expected.error + rounding);
        CHECK(expected.error + rounding < 1e-3);  // of gradients of about 1
      }
    }
  }
}

namespace {

/// A feed-forward's, an expert's, or a router's.
bool is_gated(const std::string& name) {
  return std::ranges::any_of(std::array{"/gate", "/up", "/down", "/router"},
                             [&](const char* end) { return name.ends_with(end); });
}

/// The lines of a gradient, (lines, elements): one for each token of an embedding, for each hidden unit of a
/// feed-forward, and for each expert of a router.
std::vector<std::vector<float>> lines_of(const std::string& name, const HostTensor& gradient) {
  const bool by_columns = is_gated(name) && !name.ends_with("/down");
  const auto width = static_cast<std::size_t>(gradient.shape.back());
  std::vector<std::vector<float>> lines(by_columns ? width : gradient.values.size() / width);
  for (std::size_t i = 0; i < gradient.values.size(); ++i)
    lines[by_columns ? i % width : i / width].push_back(gradient.values[i]);
  return lines;
}

/// Elements of a gradient that any token reaches, and how many of them are not 0.
struct Reached {
  double elements = 0, not_zero = 0;
};

/// Of each gradient, and of the same one of all experts of a block together. No token reaches the embeddings of
/// others, an expert that it has not chosen, and a hidden unit whose gate is closed to it.
std::map<std::string, Reached> reached(const ExactProblem& problem) {
  const DecoderModel& model = as_decoder(*problem.workload).model();
  const Tokens tokens =
      Tokens::read(Tensor::from_host(problem.input.shape, problem.input.values), model.vocabulary);
  std::map<std::string, Reached> all;
  for (const auto& [name, gradient] : solve(problem)) {
    const bool by_token = name == embedding_name() && !model.is_tied;
    Reached& sum = all[std::regex_replace(name, std::regex("expert_[0-9]+"), "experts")];
    Index at = 0;
    for (const std::vector<float>& line : lines_of(name, gradient)) {
      const auto size = static_cast<double>(line.size());
      const double not_zero = size - static_cast<double>(std::ranges::count(line, 0.0F));
      const bool is_reached = by_token         ? std::ranges::count(tokens.ids, at) > 0
                              : is_gated(name) ? not_zero > 0
                                               : true;
      sum.not_zero += not_zero;
      sum.elements += is_reached ? size : 0;
      ++at;
    }
  }
  all.erase("output");
  return all;
}

const auto any = [](const Workload&) { return true; };

}  // namespace

TEST_CASE("decoder: in exact problems, 90 % or more of each gradient's elements that are reached are not 0") {
  std::vector<ExactProblem> problems;
  for (const TestCase& c : decoder().cases(any)) problems.push_back(c.workload->exact_problem(c.batch, 3));
  for (int devices : {2, 3, 5})
    for (ExactProblem& problem : decoder().live_problems(devices, any))
      problems.push_back(std::move(problem));
  for (const ExactProblem& problem : problems) {
    for (const auto& [name, of] : reached(problem)) {
      CAPTURE(problem.workload->describe(), name);
      CHECK(of.elements > 0);
      CHECK(of.not_zero >= 0.9 * of.elements);
    }
  }
}

TEST_CASE("decoder: integer optimizers count gradients in the network's units, and keep momenta of them") {
  const TestCase c = decoder().cases(any)[0];
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
      const Solution expected = solve(problem);
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

/// A file of one of the exact problems that the suite for foreign implementations has (golden/manifest.json).
Weights golden(const std::string& problem, const std::string& file) {
  const std::filesystem::path root =
      std::filesystem::path(Characters::default_path()).parent_path() / "../..";
  const auto stored =
      open_checkpoint((root / "tests/equivalence/golden" / problem / (file + ".safetensors")).string());
  Weights all;
  for (const std::string& name : stored->names()) {
    const Shape shape = stored->shape(name);
    all[name] = {shape, stored->read(name, 0, 0, shape[0])};
  }
  return all;
}

/// What its params and batch say: ids and labels side by side, and the gradient of each token's loss.
ExactProblem golden_problem(const std::string& name, Index window, Index head_dim) {
  const Weights weights = golden(name, "params"), batch = golden(name, "batch");
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

TEST_CASE("decoder: the suite's exact problems come out bit for bit, by its definition and by the engine") {
  for (const auto& [name, window, head_dim] :
       {std::tuple("decoder-exact-plain", 0, 2), std::tuple("decoder-exact-window-tied", 3, 2),
        std::tuple("decoder-exact-experts", 0, 4)}) {
    const ExactProblem problem = golden_problem(name, window, head_dim);
    SingleDecoder engine(group(), as_decoder(*problem.workload).model());
    engine.load_checkpoint(*host_checkpoint(problem.weights, name));
    const Results results = run_step(engine, problem.input, problem.output_grad);
    const Solution solution = solve(problem);
    Weights expected = golden(name, "expected");
    const std::vector<float> losses = expected.extract("losses").mapped().values;
    for (const auto& [parameter, gradient] : expected) {
      CAPTURE(name, parameter);
      CHECK(solution.at(parameter).values == gradient.values);
      CHECK(results.gradients.at(parameter).local().to_host() == gradient.values);
    }
    CHECK(solution.at("output").values == losses);
    CHECK(results.output.at(0).rows.values == losses);
    CHECK(expected.size() + 1 == solution.size());
  }
}

}  // namespace shard::testing
