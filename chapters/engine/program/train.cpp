#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "engine/loss.hpp"
#include "engine/optimizer.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/report.hpp"
#include "engine/proof/compare.hpp"
#include "engine/proof/exact.hpp"
#include "engine/workloads/digits.hpp"

namespace shard {

namespace {

using std::chrono::steady_clock;

bool speaks(const Communicator& group) {
  return group.device_id() == 0;
}

/// While it lives, products are exact.
class InFloat32 {
 public:
  InFloat32() { set_precision(Precision::float32); }
  ~InFloat32() { set_precision(before_); }
  InFloat32(const InFloat32&) = delete;
  InFloat32& operator=(const InFloat32&) = delete;

 private:
  Precision before_ = precision();
};

/// The largest difference, in units in the last place, over all devices; prints the first of each.
Index worst_of_all(Communicator& group, const std::vector<Comparison>& comparisons) {
  Index worst = 0;
  std::string first;
  for (const Comparison& c : comparisons) {
    worst = std::max(worst, c.max_ulp);
    if (first.empty()) first = c.first_difference;
  }
  for (const std::string& line : group.gather("exact mode", first))
    if (!line.empty()) fmt::print("  differs: {}\n", line);
  return std::ranges::max(group.exchange("exact mode", worst));
}

/// The largest difference to the unsharded network in exact mode.
Index exact_difference(Communicator& group, const Chapter& chapter, const Variant& variant,
                       const Options& options, const Digits& digits) {
  const InFloat32 exact;
  constexpr Index rows = 13;  // few enough to stay exact, and odd, so that no cut is even
  const Network& network = chapter.network;
  ExactProblem problem =
      network.exact_problem(options.model, options.engine.routing, rows, options.seed, &digits);
  std::map<std::string, HostTensor> expected = network.solve(problem);
  EngineOptions exact_options = options.engine;
  exact_options.routing = problem.routing;
  std::unique_ptr<ShardedEngine> engine = variant.make(group, exact_options);
  engine->load_checkpoint(*host_checkpoint(problem.weights, "exact mode"));
  engine->want_input_grad(true);

  std::vector<Comparison> comparisons;
  auto loss_gradient = [&](const Tensor& output, Index first_row) {
    Range seen = {first_row, first_row + output.extent(0)};
    auto rows_of = [&](const HostTensor& t) {
      return slice(Tensor::from_host(t.shape, t.values), 0, seen.begin, seen.end);
    };
    Tensor want = rows_of(expected.at("output"));
    comparisons.push_back(compare("output", {output.shape(), output.to_host()},
                                  {want.shape(), want.to_host()}, group.num_devices(), 0, first_row));
    return rows_of(problem.output_grad);
  };
  Range mine = engine->input_rows(rows);
  Tensor input = Tensor::from_host(problem.input.shape, problem.input.values);
  Gradients gradients = engine->forward_backward(slice(input, 0, mine.begin, mine.end), loss_gradient);
  for (const auto& [name, gradient] : gradients)
    comparisons.push_back(compare(name, gradient, expected.at(name)));
  return worst_of_all(group, comparisons);
}

/// A few digits: as they are, with noise, and as the network mends them.
std::string pictures(ShardedEngine& engine, const Digits& digits, const Options& options) {
  constexpr Index count = 3;
  InferenceMode no_tape;
  DenoisingBatch shown(digits, options.seed, 0);  // no training step has number 0
  Tensor mended = engine.whole(engine.forward(shown.noisy(engine.input_rows(count))));
  std::vector<std::vector<float>> images;
  for (Index i = 0; i < count; ++i) {
    images.push_back(shown.noisy({i, i + 1}).to_host());
    images.push_back(slice(mended, 0, i, i + 1).to_host());
  }
  return draw_digits(images);
}

/// A figure of the ledger beside its closed form, over steps that may differ: of the first step that misses
/// the form, or else of the step in which it is largest.
struct Worst {
  Index measured = 0;
  Index formula = 0;

  void add(Index measured_now, Index formula_now) {
    if (measured != formula) return;
    if (measured_now != formula_now || measured_now >= measured) *this = {measured_now, formula_now};
  }
};

struct Training {
  std::vector<double> losses;
  std::vector<double> milliseconds;
  Worst bytes, messages, flops, peak;
  Index all_flops = 0;
  Balance balance;
  std::vector<std::vector<Index>> choices;  // of a mixture: each step's, for each expert
};

/// What the ledger says of one step, beside what the closed form says of it.
void measure_step(Training& training, const ShardedEngine& engine, const Variant& variant,
                  const Options& options, const Optimizer& optimizer, bool is_first) {
  const Setting setting{options.engine,
                        options.model,
                        options.batch,
                        false,
                        engine.num_devices(),
                        engine.device_id(),
                        engine.routed() == nullptr ? RoutedCounts() : *engine.routed()};
  const Costs costs = variant.costs(setting);
  training.bytes.add(ledger().traffic().bytes, costs.total().bytes);
  training.messages.add(ledger().traffic().messages, costs.total().messages);
  training.flops.add(ledger().flops(), costs.flops);
  training.peak.add(ledger().peak(), costs.step_peak_bytes(optimizer.state_per_element(), is_first));
  training.all_flops += ledger().flops();
  if (engine.routed() == nullptr) return;
  training.balance.add(*engine.routed());
  std::vector<Index>& choices = training.choices.emplace_back();
  for (Index e = 0; e < engine.routed()->num_experts; ++e) choices.push_back(engine.routed()->chosen_for(e));
}

Training run_steps(ShardedEngine& engine, Optimizer& optimizer, const Variant& variant, const Digits& digits,
                   const Options& options) {
  Training training;
  Range mine = engine.input_rows(options.batch);
  for (Index step = 1; step <= options.steps; ++step) {
    ledger().reset();
    DenoisingBatch batch(digits, options.seed, step);
    MeanSquaredError loss(engine.group(), options.batch, Digits::pixels,
                          [&](Range rows) { return batch.clean(rows); });
    Tensor input = batch.noisy(mine);
    auto start = steady_clock::now();
    Gradients gradients = engine.forward_backward(
        std::move(input), [&](const Tensor& out, Index first_row) { return loss.gradient(out, first_row); });
    optimizer.step(engine, gradients);
    training.milliseconds.push_back(
        std::chrono::duration<double, std::milli>(steady_clock::now() - start).count());
    measure_step(training, engine, variant, options, optimizer, step == 1);
    double value = loss.value();
    training.losses.push_back(value);
    if (!speaks(engine.group())) continue;
    if (!std::isfinite(value))
      refuse(Code::not_finite, "train", "a finite loss", fmt::format("{} at step {}", value, step));
    if (step == 1 || step == options.steps || step % std::max<Index>(options.steps / 5, 1) == 0)
      fmt::print("  step {:>5}   loss {:.5f}\n", step, value);
  }
  return training;
}

/// Every device's figures, in the report.
void gather_figures(Communicator& group, Report& report, const Training& training) {
  auto gather = [&](const char* what, const Worst& w) {
    return gather_figure(group, what, w.measured, w.formula);
  };
  report.bytes = gather("bytes", training.bytes);
  report.messages = gather("messages", training.messages);
  report.flops = gather("flops", training.flops);
  report.peak = gather("peak", training.peak);
}

/// How evenly experts and devices were used, and what that costs.
void print_balance(Communicator& group, const Training& training) {
  std::vector<Index> flops = group.exchange("flops", training.all_flops);
  if (!speaks(group) || training.balance.is_empty()) return;
  fmt::print("{}", training.balance.describe());
  double mean = std::accumulate(flops.begin(), flops.end(), 0.0) / static_cast<double>(flops.size());
  if (flops.size() > 1)
    fmt::print("  operations in all steps: {:.4g} on the busiest device, {:.4g} on the mean\n",
               static_cast<double>(std::ranges::max(flops)), mean);
}

std::string layers_of(const Model& m) {
  std::string layers = fmt::format("{} layers", m.num_layers);
  return m.num_experts == 0 ? layers : fmt::format("{} experts of {}", m.num_experts, layers);
}

void print_heading(const Communicator& group, const Chapter& chapter, const Variant& variant,
                   const Options& o) {
  fmt::print("\n{} {}, {}, on {} device{}: {} {} -> {}, batch {}, {} {}{}\n", chapter.number, chapter.title,
             variant.name, group.num_devices(), group.num_devices() == 1 ? "" : "s", layers_of(o.model),
             o.model.model_dim, o.model.hidden_dim, o.batch, o.optimizer, o.learning_rate,
             o.precision == "float32" ? "" : ", products in " + o.precision);
}

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

Report report_of(const Communicator& group, const Chapter& chapter, const Variant& variant,
                 const Model& model) {
  Report report;
  report.chapter = chapter.number;
  report.title = chapter.title;
  report.variant = variant.name;
  report.reference = variant.reference;
  report.devices = group.num_devices();
  report.layers = model.num_layers;
  return report;
}

}  // namespace

int train(Communicator& group, const Chapter& chapter, const Variant& variant, const Options& options) {
  if (speaks(group) && !options.report.empty()) require_place_for_report(options.report);
  Digits digits(options.data);
  std::unique_ptr<ShardedEngine> engine = variant.make(group, options.engine);
  engine->load_checkpoint(*generate_checkpoint(options.model, options.seed));
  if (speaks(group)) print_heading(group, chapter, variant, options);
  Report report = report_of(group, chapter, variant, options.model);
  report.max_ulp = exact_difference(group, chapter, variant, options, digits);
  if (speaks(group))
    fmt::print(
        "  exact mode: output, dL/dx and every weight gradient differ by {} ulp from the unsharded "
        "network's\n",
        report.max_ulp);

  std::unique_ptr<Optimizer> optimizer = make_optimizer(options.optimizer, options.learning_rate);
  std::string before = pictures(*engine, digits, options);
  Training training = run_steps(*engine, *optimizer, variant, digits, options);
  gather_figures(group, report, training);
  print_balance(group, training);
  std::string after = pictures(*engine, digits, options);
  report.losses = training.losses;
  report.choices = training.choices;
  report.milliseconds = median(training.milliseconds);
  std::string last_step = engine->describe_step();
  if (!speaks(group)) return report.is_good() ? 0 : static_cast<int>(Code::differs);
  fmt::print("\n  noisy and mended, before training\n{}\n  the same after it\n{}\n", before, after);
  if (!last_step.empty()) fmt::print("{}\n", last_step);
  fmt::print("{}", table({report}));
  if (!options.report.empty()) write_report(options.report, report);
  if (report.is_good()) return 0;
  fmt::print("a gradient or a figure above is not what it should be\n");
  return static_cast<int>(Code::differs);
}

}  // namespace shard
