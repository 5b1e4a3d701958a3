/// Compares every variant of every chapter, also of a reader's own, with the unsharded network, tensor by tensor.

#include <cmath>

#include "engine/engines/optimizer.hpp"
#include "engine/workloads/other_versions.hpp"
#include "tests/equivalence/each_case.hpp"
#include "tests/equivalence/random_run.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {1, 2, 3, 4}, .with_all = {5, 6, 8, 12, 16}, .processes = {3},
        .on_cuda = {1, 2, 3, 4, 8});

namespace {

/// Compares the experts that tokens chose in the engine's step with the definitions or, for networks without
/// definitions, with the unsharded network.
void check_choices(const ExactProblem& problem, const ShardedEngine& engine) {
  const auto chosen = problem.workload->step_data(engine);
  if (!chosen) return;
  auto expected = problem.workload->step_data(problem, chosen->devices());
  if (!expected) {
    const auto unsharded = problem.workload->unsharded(group());
    unsharded->load_checkpoint(*host_checkpoint(problem.weights, "test"));
    run_step(*unsharded, problem.input, problem.output_grad);
    expected = problem.workload->step_data(*unsharded);
  }
  CHECK(chosen->equals(*expected));
}

/// A forward and a backward of a problem, booked in a ledger that is empty before. The caller holds all of dL/dY.
Gradients booked_step(ShardedEngine& engine, const ExactProblem& problem, const Tensor& all_grads) {
  Tensor input = input_of(engine, problem.input);
  ledger().reset();
  return engine.forward_backward(std::move(input), [&](const Tensor& out, Index first_row) {
    return slice(all_grads, 0, first_row, first_row + out.extent(0));
  });
}

}  // namespace

TEST_CASE("exact mode: output, dL/dx and every weight gradient equal the unsharded network's, bit for bit",
          "[suite]") {
  for_each_case(
      [](const Case& c) {
        const auto& [problem, all] = solved<3>(c);
        for (bool input_grad : {true, false}) {
          CAPTURE(input_grad);
          const Solution expected = input_grad ? all : without_input_grad(all);
          std::unique_ptr<ShardedEngine> engine = c.engine(problem, input_grad);
          Results results = run_step(*engine, problem.input, problem.output_grad);
          check_none(explained_difference(problem, results, expected));
          check_choices(problem, *engine);
        }
      },
      true);
}

TEST_CASE("a variant that cannot cut an odd number of layers says so in one line", "[suite]") {
  for (const Variant& variant : variants_here()) {
    const int devices = group().num_devices();
    auto refusal_of = [&](Index layers) {
      const auto network = variant.workload->sized(layers, 4, 4);
      const Refusal refused = refusal([&] {
        if (variant.require) variant.require(devices, *network, tested_options(variant, devices).back());
      });
      CHECK((refused.code == 0 || refused.code == static_cast<int>(Code::usage)));
      return refused.message;
    };
    const std::string of_even = refusal_of(4 * devices), of_odd = refusal_of(6 * devices - 1);
    CAPTURE(variant.name);
    if (of_odd == of_even) continue;  // the number of layers makes no difference
    CHECK(of_even.empty());
    CHECK_THAT(of_odd, contains("expected an even number of layers, given "));
    CHECK_THAT(of_odd, !contains("\n"));
  }
}

TEST_CASE("exact mode: parameters after five integer steps equal the unsharded network's, bit for bit",
          "[suite]") {
  for_each_case([](const Case& c) {
    if (!stays_exact(*c.network)) return;
    const std::vector<SolvedStep>& steps = solved_steps(c);
    std::unique_ptr<ShardedEngine> engine = c.engine(steps[0].problem, false);
    IntegerOptimizer plain = integer_optimizer<IntegerOptimizer>(steps[0].problem);
    IntegerMomentum with_momentum = integer_optimizer<IntegerMomentum>(steps[0].problem);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      INFO("step " << step);
      const auto& [problem, expected, momenta] = steps[step];
      Results results = run_step(*engine, problem.input, problem.output_grad);
      const Background stale{.others = [&] {
        return stale_versions(steps[step - 1].problem, problem, group().num_devices(), group().device_id(),
                              group());
      }};
      check_none(step == 0 ? explained_difference(problem, results, expected)
                           : first_difference(compare_all(results, expected, stale)));
      if (step < plain_steps)
        plain.step(*engine, results.gradients);
      else
        with_momentum.step(*engine, results.gradients);
    }
  });
}

TEST_CASE("the norm of all gradients counts each element once, and clipping scales them all alike",
          "[suite]") {
  for_each_case([](const Case& c) {
    const auto& [problem, expected] = solved<3>(c);
    double squares = 0;  // of integers times powers of two: exact
    for (const auto& [name, gradient] : expected)
      for (float value : gradient.values)
        if (name != "output" && name != Gradients::input_grad) squares += double{value} * double{value};
    const double norm = std::sqrt(squares);
    std::unique_ptr<ShardedEngine> engine = c.engine(problem);
    Results results = run_step(*engine, problem.input, problem.output_grad);
    CHECK(gradient_norm(group(), results.gradients) == norm);
    CHECK(clip_gradients(group(), results.gradients, 2 * norm) == norm);
    CHECK(gradient_norm(group(), results.gradients) == norm);  // clipping changed nothing
    clip_gradients(group(), results.gradients, norm / 2);
    const auto factor = static_cast<float>(norm / 2 / (norm + 1e-6));
    Solution scaled = expected;
    for (auto& [name, gradient] : scaled)
      for (float& value : gradient.values)
        if (name != "output" && name != Gradients::input_grad) value *= factor;
    check_equal(compare_all(results, scaled));
  });
}

TEST_CASE("real-valued: results and parameters after SGD steps are the unsharded network's, within rounding",
          "[suite]") {
  for_each_case([](const Case& c) {
    const auto& [problem, steps, expected] = once(c, random_run);
    const std::unique_ptr<ShardedEngine> engine = c.variant.make(group(), *c.network, c.options);
    const Tensors given = sgd_steps(*engine, problem.weights, problem.input, problem.output_grad, steps);
    CHECK(given.size() == expected.values.size());
    for (const auto& [name, result] : given) {
      CAPTURE(name);
      CHECK(worst_in_bounds(result, expected.values.at(name), expected.bounds.at(name)) <= 1);
    }
  });
}

TEST_CASE("closed forms: bytes, messages, operations and peak bytes are what the ledger measures",
          "[suite]") {
  for_each_case([](const Case& c) {
    if (!c.variant.costs) return;
    const ExactProblem& problem = solved<3>(c).problem;
    for (bool input_grad : {false, true}) {
      CAPTURE(input_grad);
      std::unique_ptr<ShardedEngine> engine = c.engine(problem);
      engine->want_input_grad(input_grad);
      const Tensor all_grads = to_device(problem.output_grad);
      const Gradients gradients = booked_step(*engine, problem, all_grads);
      INFO(
          "left: what this device sent, computed or held; right: what the closed form, .costs in "
          "chapter.cpp, says");
      const Costs costs = c.variant.costs(
          c.setting(input_grad, problem.workload->step_data(problem, group().num_devices())), c.options);
      for (std::size_t i = 0; i < num_collectives; ++i) {
        auto collective = static_cast<Collective>(i);
        CAPTURE(name(collective));
        CHECK(ledger().traffic(collective) == costs.sent[i]);
      }
      CHECK(ledger().flops() == costs.flops);
      CHECK(ledger().peak() - all_grads.bytes() == costs.peak_bytes);
      CHECK(ledger().live(Purpose::parameters) == costs.parameter_bytes);
      CHECK(ledger().live(Purpose::buffers) == 0);
    }
  });
}

TEST_CASE(
    "closed forms of whole steps with Adam: what is sent and held, the optimizer and after_step included",
    "[suite]") {
  for_each_case([](const Case& c) {
    const ExactProblem& problem = solved<3>(c).problem;
    std::unique_ptr<ShardedEngine> engine = c.engine(problem, false);
    Adam adam({});
    for (int step = 0; step < 3; ++step) {
      INFO("step " << step);
      set_precision(step < 2 ? Precision::float32 : Precision::bf16);
      const Tensor all_grads = to_device(problem.output_grad);
      Gradients gradients = booked_step(*engine, problem, all_grads);
      adam.step(*engine, gradients);
      CHECK(ledger().live(Purpose::optimizer) == 2 * ledger().live(Purpose::gradients));
      CHECK(ledger().live(Purpose::activations) == all_grads.bytes());
      CHECK(ledger().live(Purpose::buffers) == 0);
      if (!c.variant.costs) continue;
      // Adam changes a router, too, so the choices are the engine's.
      INFO(
          "left: what this device sent, computed or held; right: what the closed form, .costs in "
          "chapter.cpp, says");
      const Costs costs = c.variant.costs(c.setting(false, problem.workload->step_data(*engine)), c.options);
      for (std::size_t i = 0; i < num_collectives; ++i) {
        auto collective = static_cast<Collective>(i);
        CAPTURE(name(collective));
        CHECK(ledger().traffic(collective) == costs.sent[i] + costs.sent_after_step[i]);
      }
      CHECK(ledger().traffic() == costs.total());
      CHECK(ledger().peak() - all_grads.bytes() ==
            costs.step_peak_bytes(adam.state_per_element(), step == 0));
      CHECK(ledger().live(Purpose::parameters) == costs.parameter_bytes);
      CHECK(ledger().live(Purpose::gradients) == costs.trained());
    }
    set_precision(Precision::float32);
  });
}

namespace {

/// The problem of solved<3> with another batch: each even row is copied to the next one, so that a mixture counts
/// other choices. (With new rows, some problems would not be exact.)
Solved with_other_rows(const Case& c) {
  ExactProblem problem = solved<3>(c).problem;
  const Index width = problem.input.shape[1];
  for (Index row = 0; row + 1 < c.batch; row += 2)
    std::copy_n(problem.input.values.begin() + row * width, width,
                problem.input.values.begin() + (row + 1) * width);
  problem.output_grad = c.exact_problem(8).output_grad;
  Solution solution = solve(problem, group());
  return {std::move(problem), std::move(solution)};
}

}  // namespace

TEST_CASE("several forwards of different batches may precede their backwards, first in, first out",
          "[suite]") {
  bool input_grad = false;
  for_each_case([&](const Case& c) {
    const Solved* const both[] = {&solved<3>(c), &once(c, with_other_rows)};
    input_grad = !input_grad;  // alternates between cases
    std::unique_ptr<ShardedEngine> engine = c.engine(both[0]->problem, input_grad);
    std::vector<Tensor> waiting;
    for (const Solved* s : both) {
      const HostTensor& dout = s->problem.output_grad;
      Placed out = engine->forward(input_of(*engine, s->problem.input));
      waiting.push_back(out.slice_of(Tensor::from_host(dout.shape, dout.values)));
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const auto& [problem, all] = *both[i];
      const Solution expected = input_grad ? all : without_input_grad(all);
      Gradients gradients = engine->backward(std::move(waiting[i]));
      check_equal(shard::compare_all(group(), {}, gradients, expected));
    }
    CHECK_THROWS_AS(engine->backward(Tensor()), Error);
  });
}

namespace {

/// Batches of given sizes, one after the other, out of one host tensor.
class Batches : public InputStream {
 public:
  Batches(const HostTensor& rows, std::vector<Index> sizes) : rows_(rows), sizes_(std::move(sizes)) {}
  std::optional<Tensor> next() override {
    if (at_ == sizes_.size()) return std::nullopt;
    Range range = {begin_, begin_ + sizes_[at_++]};
    begin_ = range.end;
    return rows_of(rows_, range);
  }

 private:
  const HostTensor& rows_;
  std::vector<Index> sizes_;
  std::size_t at_ = 0;
  Index begin_ = 0;
};

class Collected : public OutputStream {
 public:
  void write(const Tensor& rows) override {
    std::vector<float> more = rows.to_host();
    values.insert(values.end(), more.begin(), more.end());
  }
  std::vector<float> values;
};

}  // namespace

TEST_CASE("inference_loop gives the forward pass's rows in order, keeps nothing, and ends on every device",
          "[suite]") {
  for (const Variant& variant : variants_here()) {
    CAPTURE(variant.name);
    const Case c = streamed_case(variant);
    ExactProblem problem = c.exact_problem(9);
    std::unique_ptr<ShardedEngine> engine = c.engine(problem);
    std::int64_t before = ledger().live();
    Batches input(problem.input, {2, 1, 3, 1, 1, 1, 2});
    Collected output;
    engine->inference_loop(input, output);
    CHECK(ledger().live() == before);
    HostTensor expected = solve(problem, group()).at("output");
    CHECK(output.values == (engine->device_id() == 0 ? expected.values : std::vector<float>{}));
  }
}

TEST_CASE("a checked run finds nothing wrong with the chapter's claims", "[suite]") {
  const CheckedRun checked;
  for (const Variant& variant : variants_here()) {
    const Case c = streamed_case(variant);
    ExactProblem problem = c.exact_problem(9);
    std::unique_ptr<ShardedEngine> engine = c.engine(problem);
    Results results = run_step(*engine, problem.input, problem.output_grad);
    check_none(explained_difference(problem, results, solve(problem, group())));
  }
}

}  // namespace shard::testing
