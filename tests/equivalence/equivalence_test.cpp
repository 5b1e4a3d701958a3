/// Every chapter and variant against chapter 01, or a mixture against itself on one device, per tensor, on
/// the slice that each device owns. Built once for each folder in chapters/, also a reader's own: what its
/// chapter.hpp declares is tested.

#include "tests/equivalence/equivalence.hpp"

#include "01_single_device/single_device.hpp"
#include "engine/workloads/random.hpp"
#include "tests/equivalence/mixture_reference.hpp"
#include "tests/equivalence/reference.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

const testing::RunsOn runs_on({1, 2, 3, 4, 5, 8});

namespace {

/// Chapter 01 with the problem's weights, or the variant that a mixture's variant names: a network that is
/// not divided.
std::unique_ptr<ShardedEngine> unsharded(const Variant& variant, const ExactProblem& problem) {
  const Variant single{
      "single", "", [](const EngineOptions&) { return std::make_unique<SingleDevice>(); }, {}};
  if (variant.reference.empty()) return make_engine(single, {}, problem);
  for (const Variant& other : this_chapter().variants)
    if (other.name == variant.reference) return make_engine(other, {}, problem);
  throw Error(Code::internal, variant.name + ": expected its reference among the variants, given none");
}

/// The results of a network that is not divided, whole.
std::map<std::string, HostTensor> whole_results(ShardedEngine& engine, const ExactProblem& problem) {
  Results results = run_step(engine, problem.input, problem.output_grad);
  std::map<std::string, HostTensor> whole = {{"output", results.output.at(0).rows}};
  for (const auto& [name, gradient] : results.gradients)
    whole[name] = {gradient.local().shape(), gradient.local().to_host()};
  return whole;
}

/// Uniform in ±most.
HostTensor random_tensor(Shape shape, const std::string& name, std::uint64_t seed, float most = 1) {
  HostTensor t{shape, {}};
  CounterRandom random(seed, name);
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(most * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
  return t;
}

/// Initial weights as for training: deep stacks of larger ones would leave the range of float32 within a few
/// steps.
std::map<std::string, HostTensor> random_weights(const Model& model, std::uint64_t seed) {
  std::map<std::string, HostTensor> weights;
  std::unique_ptr<Checkpoint> initial = generate_checkpoint(model, seed);
  for (const std::string& name : initial->names())
    weights[name] = {initial->shape(name), initial->whole(name).to_host()};
  return weights;
}

/// Steps of SGD on random data, and what should come of them, with bounds, by the independent reference.
struct RandomRun {
  static constexpr float rate = 0x1p-5F;
  std::map<std::string, HostTensor> start;
  HostTensor input, output_grad;
  std::vector<std::map<std::string, Bounded>> steps;  // results of each
  std::vector<Bounded> outputs;                       // after each

  RandomRun(const Case& c, std::uint64_t seed)
      : start(random_weights(c.model, seed)),
        input(random_tensor({c.batch, c.model.model_dim}, "input", seed)),
        output_grad(random_tensor({c.batch, c.model.width(c.model.num_layers)}, "output_grad", seed,
                                  1 / static_cast<float>(c.batch))) {
    std::map<std::string, Bounded> weights;
    for (const auto& [name, w] : start) weights.emplace(name, w);
    steps.push_back(solve(c, weights));
    for (int step = 0; step < 3; ++step) {
      for (auto& [name, w] : weights) sgd_step(w, steps.back().at(name), rate);
      steps.push_back(solve(c, weights));
      outputs.push_back(steps.back().at("output"));
    }
  }

 private:
  std::map<std::string, Bounded> solve(const Case& c, const std::map<std::string, Bounded>& weights) const {
    if (c.model.num_experts > 0)
      return solve_bounded_mixture(c.model, c.options.routing, weights, Bounded(input), Bounded(output_grad));
    return solve_bounded(c.model, weights, Bounded(input), Bounded(output_grad));
  }
};

/// The first of some seeds whose data leave a mixture's router no doubt in any step.
RandomRun random_run(const Case& c) {
  for (std::uint64_t seed = 7;; ++seed) {
    try {
      return RandomRun(c, seed);
    } catch (const DoubtfulChoice&) {
      if (seed == 70) throw;
    }
  }
}

/// How far the worst element is from the reference, in units of its bound; more than 1 is an error.
double worst_in_bounds(const HostTensor& whole_actual, const Bounded& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.value.size(); ++i) {
    double difference = std::abs(whole_actual.values.at(i) - expected.value[i]);
    if (difference > 0) worst = std::max(worst, difference / expected.error[i]);
    if (!std::isfinite(whole_actual.values[i])) worst = INFINITY;
  }
  return worst;
}

HostTensor whole_on_host(ShardedEngine& engine, Placed placed) {
  Tensor t = engine.whole(std::move(placed));
  return {t.shape(), t.to_host()};
}

template <class Check>
void for_each_case(const Check& check) {
  Chapter chapter = this_chapter();
  for (const Variant& variant : chapter.variants)
    for (const Case& c : cases(variant)) {
      CAPTURE(variant.name, c.model.num_layers, c.model.model_dim, c.model.hidden_dim, c.batch);
      CAPTURE(c.options.micro_batches, c.options.bucket_bytes, c.model.num_experts, c.options.routing.top_k);
      check(variant, c);
    }
}

}  // namespace

TEST_CASE("exact mode: output, dL/dx and every weight gradient equal chapter 01's, bit for bit") {
  for_each_case([](const Variant& variant, const Case& c) {
    ExactProblem problem = c.exact_problem(3);
    std::map<std::string, HostTensor> expected = whole_results(*unsharded(variant, problem), problem);
    std::map<std::string, HostTensor> integers = this_chapter().network.solve(problem);
    for (const auto& [name, tensor] : integers)
      CHECK(compare(name, expected.at(name), tensor).first_difference == "");

    std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
    Results results = run_step(*engine, problem.input, problem.output_grad);
    CHECK(results.gradients.size() == expected.size() - 1);
    CHECK(first_difference(compare_all(results, expected)) == "");
  });
}

TEST_CASE("exact mode: parameters after five integer steps equal chapter 01's, bit for bit") {
  for_each_case([](const Variant& variant, const Case& c) {
    // Steps make sparse weights dense: wider or deeper, sums would overflow.
    if (c.model.num_layers > 16) return;
    if (c.model.hidden_dim > (c.model.num_layers > 6 ? 2 : c.model.num_layers > 2 ? 8 : 16)) return;
    ExactProblem problem = c.exact_problem(4);
    std::unique_ptr<ShardedEngine> reference = unsharded(variant, problem);
    std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
    IntegerOptimizer ours, theirs;
    for (int step = 0; step < 5; ++step) {
      INFO("step " << step);
      Results expected = run_step(*reference, problem.input, problem.output_grad);
      std::map<std::string, HostTensor> integers = this_chapter().network.solve(problem);
      CHECK(first_difference(compare_all(expected, integers)) == "");
      Results results = run_step(*engine, problem.input, problem.output_grad);
      CHECK(first_difference(compare_all(results, integers)) == "");
      theirs.step(*reference, expected.gradients);
      ours.step(*engine, results.gradients);
      integer_step(problem, integers);
    }
  });
}

TEST_CASE("real-valued: results and parameters after SGD steps are within the bound of float32 rounding") {
  for_each_case([](const Variant& variant, const Case& c) {
    RandomRun run = random_run(c);
    std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, run.start);
    Sgd sgd(RandomRun::rate);
    for (std::size_t step = 0; step < run.outputs.size(); ++step) {
      INFO("step " << step);
      Results results = run_step(*engine, run.input, run.output_grad);
      sgd.step(*engine, results.gradients);
      for (auto& [name, gradient] : results.gradients) {
        CAPTURE(name);
        CHECK(worst_in_bounds(whole_on_host(*engine, std::move(gradient)), run.steps[step].at(name)) <= 1);
      }
      InferenceMode no_tape;
      HostTensor output = whole_on_host(*engine, engine->forward(input_of(*engine, run.input)));
      CHECK(worst_in_bounds(output, run.outputs[step]) <= 1);
    }
  });
}

TEST_CASE("closed forms: bytes, messages, operations and peak bytes are what the ledger measures") {
  for_each_case([](const Variant& variant, const Case& c) {
    ExactProblem problem = c.exact_problem(5);
    for (bool input_grad : {false, true}) {
      CAPTURE(input_grad);
      std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
      engine->want_input_grad(input_grad);
      Tensor input = input_of(*engine, problem.input);
      Tensor all_grads = Tensor::from_host(problem.output_grad.shape, problem.output_grad.values);
      std::int64_t held_by_us = all_grads.bytes();
      ledger().reset();
      Gradients gradients =
          engine->forward_backward(std::move(input), [&](const Tensor& out, Index first_row) {
            return slice(all_grads, 0, first_row, first_row + out.extent(0));
          });
      Setting setting = c.setting(input_grad);
      if (const auto& route = this_chapter().network.route) {
        setting.routed = route(problem, world().num_devices());
        CHECK(
            (engine->routed() != nullptr && *engine->routed() == route(problem, engine->routed()->devices)));
      }
      Costs costs = variant.costs(setting);
      for (int i = 0; i < num_collectives; ++i) {
        auto collective = static_cast<Collective>(i);
        CAPTURE(name(collective));
        CHECK(ledger().traffic(collective).bytes == costs[collective].bytes);
        CHECK(ledger().traffic(collective).messages == costs[collective].messages);
      }
      CHECK(ledger().flops() == costs.flops);
      CHECK(ledger().peak() - held_by_us == costs.peak_bytes);
      CHECK(ledger().live(Purpose::parameters) == costs.parameter_bytes);
      CHECK(ledger().live(Purpose::buffers) == 0);
    }
  });
}

TEST_CASE(
    "closed forms of whole steps with Adam: what is sent and held, the optimizer and after_step included") {
  for_each_case([](const Variant& variant, const Case& c) {
    ExactProblem problem = c.exact_problem(5);
    std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
    engine->want_input_grad(false);
    Adam adam({});
    for (int step = 0; step < 3; ++step) {
      INFO("step " << step);
      Tensor input = input_of(*engine, problem.input);
      Tensor all_grads = Tensor::from_host(problem.output_grad.shape, problem.output_grad.values);
      ledger().reset();
      Gradients gradients =
          engine->forward_backward(std::move(input), [&](const Tensor& out, Index first_row) {
            return slice(all_grads, 0, first_row, first_row + out.extent(0));
          });
      adam.step(*engine, gradients);
      Setting setting = c.setting(false);
      if (engine->routed() != nullptr) setting.routed = *engine->routed();  // Adam moves the router, too
      const Costs costs = variant.costs(setting);
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
      CHECK(ledger().live(Purpose::optimizer) == 2 * costs.trained());
      CHECK(ledger().live(Purpose::activations) == all_grads.bytes());
      CHECK(ledger().live(Purpose::buffers) == 0);
    }
  });
}

TEST_CASE("several forwards may precede their backwards, first in, first out") {
  for_each_case([](const Variant& variant, const Case& c) {
    const Network network = this_chapter().network;
    ExactProblem first = c.exact_problem(6);
    ExactProblem second = c.exact_problem(8);
    second.weights = first.weights;
    if (network.has_experts) {  // gates are exact for the tokens they were made for: in another order
      second.input = first.input;
      std::rotate(second.input.values.begin(), second.input.values.begin() + c.model.model_dim,
                  second.input.values.end());
    }
    std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, first);
    std::vector<std::pair<ExactProblem*, Tensor>> waiting;
    for (ExactProblem* problem : {&first, &second}) {
      Placed out = engine->forward(input_of(*engine, problem->input));
      waiting.emplace_back(
          problem, out.slice_of(Tensor::from_host(problem->output_grad.shape, problem->output_grad.values)));
    }
    for (auto& [problem, dout] : waiting) {
      std::map<std::string, HostTensor> expected = network.solve(*problem);
      Gradients gradients = engine->backward(std::move(dout));
      for (const auto& [name, gradient] : gradients)
        CHECK(compare(name, gradient, expected.at(name)).first_difference == "");
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

TEST_CASE("inference_loop gives the forward pass's rows in order, keeps nothing, and ends on every device") {
  Chapter chapter = this_chapter();
  for (const Variant& variant : chapter.variants) {
    CAPTURE(variant.name);
    const Case c = one_case(variant);
    ExactProblem problem = c.exact_problem(9);
    std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
    std::int64_t before = ledger().live();
    Batches input(problem.input, {2, 1, 3, 1, 1, 1, 2});
    Collected output;
    engine->inference_loop(input, output);
    CHECK(ledger().live() == before);
    HostTensor expected = chapter.network.solve(problem).at("output");
    CHECK(output.values == (engine->device_id() == 0 ? expected.values : std::vector<float>{}));
  }
}

TEST_CASE("a checked run finds nothing wrong with the chapter's claims") {
  world().check_claims(true);
  for (const Variant& variant : this_chapter().variants) {
    const Case c = one_case(variant);
    ExactProblem problem = c.exact_problem(9);
    std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
    Results results = run_step(*engine, problem.input, problem.output_grad);
    CHECK(first_difference(compare_all(results, this_chapter().network.solve(problem))) == "");
  }
  world().check_claims(false);
}

}  // namespace shard::testing
