/// The encoder-decoder on one device by itself: its gradients are finite differences, and its problems leave
/// nothing out.

#include "engine/workloads/t5.hpp"

#include "08_decoder/t5.hpp"
#include "tests/equivalence/finite_differences.hpp"
#include "tests/equivalence/liveness.hpp"
#include "tests/equivalence/t5_reference.hpp"

namespace shard::testing {

using decoders::T5Single;

namespace {

T5Model tiny_model(Hidden hidden) {
  T5Model m;
  m.encoder_blocks = 2, m.decoder_blocks = 2, m.model_dim = 4, m.heads = 2, m.head_dim = 2, m.hidden_dim = 3;
  m.vocabulary = 5, m.buckets = 6, m.max_distance = 4;
  m.hidden = hidden, m.is_tied = hidden == Hidden::relu;
  if (m.is_tied) m.how.logit_scale = 1 / std::sqrt(static_cast<float>(m.model_dim));
  return m;
}

}  // namespace

TEST_CASE("T5: the gradients of the single engine are the definition's finite differences") {
  for (Hidden hidden : {Hidden::relu, Hidden::geglu}) {
    const T5Model model = tiny_model(hidden);
    T5Single engine(group(), model);
    check_gradients<SampledT5>(engine, model, AtPoint(T5(model, 5, 4)));
  }
}

TEST_CASE("T5: in exact problems, 90 % or more of each gradient's elements that are reached are not 0") {
  for (const ExactProblem& problem : problems_of(t5())) {
    const T5Model& model = as_t5(*problem.workload).model();
    const Tensor input = Tensor::from_host(problem.input.shape, problem.input.values);
    auto [source, target] = SourceAndTarget::read(input, model.vocabulary);
    std::vector<Index> ids = source.ids;
    ids.insert(ids.end(), target.ids.begin(), target.ids.end());
    check_live(problem, model.is_tied ? std::nullopt : std::optional(ids));
  }
}

TEST_CASE("T5: in live problems, distances reach half of the buckets, and each loss is not 0") {
  for (int devices : {2, 3, 5})
    for (const ExactProblem& problem : t5().live_problems(devices, [](const Workload&) { return true; })) {
      CAPTURE(problem.workload->describe());
      const Solution solution = solve(problem);
      CHECK(std::ranges::count(solution.at("output").values, 0.0F) == 0);
      const T5Model& model = as_t5(*problem.workload).model();
      for (Side side : {Side::encoder, Side::decoder}) {
        const HostTensor& bias = solution.at(t5_name(side, "position_bias"));
        const auto not_zero = static_cast<double>(bias.values.size()) -
                              static_cast<double>(std::ranges::count(bias.values, 0.0F));
        CHECK(not_zero >= 0.45 * static_cast<double>(model.buckets * model.heads));
      }
    }
}

TEST_CASE("T5: integer optimizers count gradients in the network's units, with real numbers, too") {
  for (const TestCase& c : t5().cases([](const Workload&) { return true; })) {
    const float unit = c.workload->exact_problem(c.batch, 4).workload->gradient_unit();
    CHECK(unit > 0);
    CHECK(unit < 1);
    CHECK(c.workload->gradient_unit() == unit);
  }
}

}  // namespace shard::testing
