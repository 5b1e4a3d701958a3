/// The decoder on one device by itself: its gradients are finite differences, its problems leave nothing out,
/// and integer optimizers count in its units.

#include "engine/workloads/decoder.hpp"

#include "08_decoder/single.hpp"
#include "engine/program/training_step.hpp"
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
