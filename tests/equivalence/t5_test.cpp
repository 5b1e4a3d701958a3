/// The exact problems of encoder-decoders have few gradients of 0.

#include "engine/workloads/t5/t5.hpp"

#include "tests/equivalence/liveness.hpp"

namespace shard::testing {

TEST_CASE("T5: in exact problems, 90 % or more of each gradient's elements that are reached are not 0") {
  for (const ExactProblem& problem : problems_of(t5())) {
    const T5Model& model = as_t5(*problem.workload).model();
    const Tensor input = Tensor::from_host(problem.input.shape, problem.input.values);
    auto [source, target] = SourceAndTarget::read(input, model.vocabulary);
    std::vector<Index> ids(source.ids.begin(), source.ids.end());
    ids.insert(ids.end(), target.ids.begin(), target.ids.end());
    check_live(problem, model.is_tied ? std::nullopt : std::optional(ids));
  }
}

TEST_CASE("T5: in live problems, distances reach half of the buckets, and each loss is not 0") {
  for (int devices : {2, 3, 5})
    for (const ExactProblem& problem :
         live_problems_of(t5(), devices, [](const Workload&) { return true; })) {
      CAPTURE(problem.workload->describe());
      const Solution solution = solve(problem, group());
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
  for (const TestCase& c : cases_of(t5(), [](const Workload&) { return true; })) {
    const float unit = c.workload->exact_problem(c.batch, 4).workload->gradient_unit();
    CHECK(unit > 0);
    CHECK(unit < 1);
    CHECK(c.workload->gradient_unit() == unit);
  }
}

}  // namespace shard::testing
