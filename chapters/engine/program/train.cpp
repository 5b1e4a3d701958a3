#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "engine/gradient_norm.hpp"
#include "engine/host_checkpoint.hpp"
#include "engine/optimizer.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/progress.hpp"
#include "engine/program/report.hpp"
#include "engine/proof/compare.hpp"

namespace shard {

namespace {

using std::chrono::steady_clock;

bool speaks(Communicator& group) {
  return group.device_id() == 0;
}

/// Matrix products use float32 during the lifetime of this object.
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
Index exact_difference(Communicator& group, const Variant& variant, const Workload& network,
                       const Arguments& arguments) {
  const InFloat32 exact;
  constexpr Index rows = 13;  // few enough to stay exact, and odd, so that no cut is even
  ExactProblem problem = network.exact_problem(rows, arguments.seed);
  const Solution expected = solve(problem);
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *problem.workload, arguments.options);
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

/// A figure of the ledger and its closed form, if it has one. Of all steps, it keeps the first one in which
/// the two differ. If there is none, it keeps the step in which the figure is largest.
struct Worst {
  Index measured = 0;
  Index formula = 0;

  void add(Index measured_now, std::optional<Index> formula_now) {
    const Index form = formula_now.value_or(measured_now);
    if (measured != formula) return;
    if (measured_now != form || measured_now >= measured) *this = {measured_now, form};
  }
};

/// The state of a training run.
struct Training {
  std::vector<double> losses;
  std::vector<double> milliseconds;
  Worst bytes, messages, flops, peak;
  Index all_flops = 0;
  std::unique_ptr<Journal> journal;
};

/// What is trained, and how.
struct Run {
  Communicator& group;
  const Variant& variant;
  const Workload& network;
  const Arguments& arguments;
};

/// Compares the ledger's figures of one step with the closed form's.
void measure_step(Training& training, const Run& run, const ShardedEngine& engine, const Optimizer& optimizer,
                  bool is_first) {
  std::optional<Costs> costs;
  if (run.variant.costs)
    costs = run.variant.costs({.workload = &run.network,
                               .batch = run.arguments.batch,
                               .devices = run.group.num_devices(),
                               .device = run.group.device_id(),
                               .data = run.network.step_data(engine)},
                              run.arguments.options);
  auto form = [&](auto of) { return costs ? std::optional<Index>(of(*costs)) : std::nullopt; };
  training.bytes.add(ledger().traffic().bytes, form([](const Costs& c) { return c.total().bytes; }));
  training.messages.add(ledger().traffic().messages, form([](const Costs& c) { return c.total().messages; }));
  training.flops.add(ledger().flops(), form([](const Costs& c) { return c.flops; }));
  training.peak.add(ledger().peak(), form([&](const Costs& c) {
                      return c.step_peak_bytes(optimizer.state_per_element(), is_first);
                    }));
  training.all_flops += ledger().flops();
  if (training.journal) training.journal->add(engine);
}

/// Forward, backward and the optimizer; returns the time it took, in milliseconds.
double step_of(const Run& run, ShardedEngine& engine, Optimizer& optimizer, TrainingBatch& batch) {
  Tensor input = batch.input(engine.input_rows(run.arguments.batch));
  const auto start = steady_clock::now();
  Gradients gradients = engine.forward_backward(std::move(input), [&](const Tensor& out, Index first_row) {
    return batch.loss_gradient(out, first_row);
  });
  if (run.arguments.clip_norm) clip_gradients(run.group, gradients, *run.arguments.clip_norm);
  optimizer.step(engine, gradients);
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

Training run_steps(const Run& run, ShardedEngine& engine, Optimizer& optimizer) {
  Training training;
  training.journal = run.network.journal();
  Progress progress(run.arguments.steps);
  for (Index step = 1; step <= run.arguments.steps; ++step) {
    ledger().reset();
    const std::unique_ptr<TrainingBatch> batch =
        run.network.batch(run.arguments.batch, run.arguments.seed, step);
    training.milliseconds.push_back(step_of(run, engine, optimizer, *batch));
    measure_step(training, run, engine, optimizer, step == 1);
    const double value = batch->loss(run.group);
    training.losses.push_back(value);
    if (!speaks(run.group)) continue;
    if (!std::isfinite(value))
      refuse(Code::not_finite, "train", "a finite loss", fmt::format("{} at step {}", value, step));
    progress.show(step, value);
  }
  return training;
}

/// Every device's figures, in the report.
void gather_figures(Report& report, const Run& run, const Training& training) {
  auto gather = [&](const char* what, const Worst& w) {
    return run.variant.costs ? gather_figure(run.group, what, w.measured, w.formula)
                             : gather_figure(run.group, what, w.measured);
  };
  report.bytes = gather("bytes", training.bytes);
  report.messages = gather("messages", training.messages);
  report.bytes.is_booked = report.messages.is_booked = traffic_is_booked();
  report.flops = gather("flops", training.flops);
  report.peak = gather("peak", training.peak);
}

/// Prints what the workload noted, and how the operations are distributed over the devices.
void print_journal(Communicator& group, const Training& training) {
  if (!training.journal) return;
  const std::vector<Index> flops = group.exchange("flops", training.all_flops);
  if (!speaks(group)) return;
  fmt::print("{}", training.journal->describe());
  const double mean = std::accumulate(flops.begin(), flops.end(), 0.0) / static_cast<double>(flops.size());
  if (flops.size() > 1)
    fmt::print("  operations in all steps: {:.4g} on the busiest device, {:.4g} on the mean\n",
               static_cast<double>(std::ranges::max(flops)), mean);
}

void print_heading(const Run& run, const Chapter& chapter) {
  const Arguments& a = run.arguments;
  const int devices = run.group.num_devices();
  fmt::print("\n{} {}, {}, on {} device{}: {}, batch {}, {} {}{}{}\n", chapter.short_name(), chapter.title,
             run.variant.name, devices, devices == 1 ? "" : "s", run.network.describe(), a.batch, a.optimizer,
             a.learning_rate, a.precision == "float32" ? "" : ", products in " + a.precision,
             a.clip_norm ? fmt::format(", gradients clipped to a norm of {}", *a.clip_norm) : "");
}

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

Report report_of(const Run& run, const Chapter& chapter) {
  Report report;
  report.chapter = chapter.number;
  report.title = chapter.title;
  report.variant = run.variant.name;
  report.workload = run.network.kind().name();
  report.reference = run.variant.reference;
  report.devices = run.group.num_devices();
  report.layers = run.network.num_layers();
  return report;
}

/// Trains, and writes the results into the report. Returns the examples that the trained network makes.
std::string fill_report(Report& report, const Run& run, ShardedEngine& engine) {
  std::unique_ptr<Optimizer> optimizer =
      make_optimizer(run.arguments.optimizer, run.arguments.learning_rate,
                     [&](const std::string& parameter) { return run.network.must_stay(parameter); });
  Training training = run_steps(run, engine, *optimizer);
  gather_figures(report, run, training);
  print_journal(run.group, training);
  report.losses = training.losses;
  if (training.journal) report.decisions = training.journal->decisions();
  report.milliseconds = median(training.milliseconds);
  return run.network.examples(engine, run.arguments.seed);
}

}  // namespace

int train(Communicator& group, const Chapter& chapter, const Variant& variant, const Arguments& arguments) {
  if (speaks(group) && !arguments.report.empty()) require_place_for_report(arguments.report);
  const std::shared_ptr<Workload> network = variant.workload->make(arguments.options);
  network->open_data();
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  const Run run{group, variant, *network, arguments};
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  engine->load_checkpoint(*generate_checkpoint(network->parameters(), arguments.seed));
  if (speaks(group)) print_heading(run, chapter);
  Report report = report_of(run, chapter);
  report.max_ulp = exact_difference(group, variant, *network, arguments);
  if (speaks(group))
    fmt::print(
        "  exact mode: output, dL/dx and every weight gradient differ by {} ulp from the unsharded "
        "network's\n",
        report.max_ulp);

  const std::string before = network->examples(*engine, arguments.seed);
  const std::string after = fill_report(report, run, *engine);
  const std::string last_step = engine->describe_step();
  const int code = report.is_good() ? 0 : static_cast<int>(Code::differs);
  if (!speaks(group)) return code;
  fmt::print("\n  {}, before training\n{}\n  the same after it\n{}\n", network->examples_title(), before,
             after);
  if (!last_step.empty()) fmt::print("{}\n", last_step);
  fmt::print("{}", table({report}));
  if (!arguments.report.empty()) write_report(arguments.report, report);
  if (code != 0) fmt::print("a gradient or a figure above is not what it should be\n");
  return code;
}

}  // namespace shard
