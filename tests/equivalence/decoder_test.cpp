/// The decoder on one device by itself: its gradients are finite differences, its problems leave nothing out,
/// and integer optimizers count in its units.

#include "engine/workloads/decoder.hpp"

#include <algorithm>
#include <array>
#include <regex>

#include "08_decoder/single.hpp"
#include "engine/program/training_step.hpp"
#include "tests/equivalence/decoder_reference.hpp"
#include "tests/equivalence/finite_differences.hpp"

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

}  // namespace

TEST_CASE("decoder: the gradients of the single engine are the definition's finite differences") {
  for (const DecoderModel& model : {tiny_model(), tiny_mixture()}) {
    SingleDecoder engine(group(), model);
    check_gradients<SampledDecoder>(engine, model, AtPoint(Decoder(model, 4)));
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

}  // namespace shard::testing
