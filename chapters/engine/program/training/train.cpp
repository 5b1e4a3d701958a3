#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/basics/printable.hpp"
#include "engine/basics/terminal.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/device/books/doing.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/books/products_by.hpp"
#include "engine/device/this_device.hpp"
#include "engine/engines/optimizer.hpp"
#include "engine/files/folder_replacement.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/program/report.hpp"
#include "engine/program/training/progress.hpp"
#include "engine/program/training/step.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

/// After the loss comes the backward pass, also in an engine that says nothing of passes.
Gradients gradients_of_batch(ShardedEngine& engine, Tensor input, const LossGradient& loss_gradient) {
  const Doing::Within within(Phase::forward);
  return engine.forward_backward(std::move(input), [&](const Tensor& output, Index first_row) {
    Tensor gradient;
    {
      const Doing::Within within(Phase::loss);
      gradient = loss_gradient(output, first_row);
    }
    Doing::now().phase = Phase::backward;
    return gradient;
  });
}

void note_parameters(ShardedEngine& engine) {
  if (!device().is_observed) return;
  for (const Trainable& t : engine.trainable()) note_name(*t.parameter.tensor, t.name);
}

double training_step(const Run& run, ShardedEngine& engine, Optimizer& optimizer, TrainingBatch& batch) {
  using std::chrono::steady_clock;
  Tensor input = batch.input(engine.input_rows(run.arguments.batch));
  const auto start = steady_clock::now();
  Gradients gradients = gradients_of_batch(engine, std::move(input), [&](const Tensor& out, Index first_row) {
    return batch.loss_gradient(out, first_row);
  });
  const Doing::Within within(Phase::optimizer);
  if (run.arguments.clip_norm) clip_gradients(run.group, gradients, *run.arguments.clip_norm);
  optimizer.step(engine, gradients);
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

void load_beginning(const Run& run, ShardedEngine& engine, Optimizer& optimizer) {
  const Arguments& a = run.arguments;
  if (a.resumed)
    load_training(engine, optimizer, a.resume, *a.resumed);
  else
    engine.load_checkpoint(*generate_checkpoint(run.network.parameters(), a.seed));
}

Index steps_before(const Run& run) {
  return run.arguments.resumed ? run.arguments.resumed->training->step : 0;
}

std::unique_ptr<Optimizer> optimizer_of(const Run& run) {
  return make_optimizer(
      run.arguments.optimizer, run.arguments.learning_rate,
      [&network = run.network](const std::string& parameter) { return network.must_stay(parameter); },
      run.network.gradient_unit());
}

Index state_per_element(const Arguments& arguments) {
  return make_optimizer(arguments.optimizer, arguments.learning_rate,
                        [](const std::string&) { return false; })
      ->state_per_element();
}

namespace {

bool speaks(Communicator& group) {
  return group.device_id() == 0;
}

struct Training {
  std::vector<double> losses;
  std::vector<double> milliseconds;
  StepFigures figures;
  Journal journal;
};

/// Refuses what an update made NaN or infinite. The loss of its step is computed before, and does not show it.
/// A collective. \throws Error not_finite
void require_finite_parameters(Communicator& group, ShardedEngine& engine, Index step) {
  std::string mine;
  for (const Trainable& t : engine.trainable())
    if (mine.empty() && !all_finite(*t.parameter.tensor)) mine = t.name;
  for (const std::string& name : group.gather_for_all("parameters that are not finite", mine))
    if (!name.empty())
      refuse(Code::not_finite, "train", "finite parameters",
             fmt::format("{} with an element that is not finite after step {}", name, step));
}

/// Checks and saves after the last step and, with --save-every k, after every k-th step.
void save_if_due(const Run& run, ShardedEngine& engine, Optimizer& optimizer, Index step) {
  const Arguments& a = run.arguments;
  if (step != a.steps && (a.save_every == 0 || step % a.save_every != 0)) return;
  require_finite_parameters(run.group, engine, step);
  if (a.save.empty()) return;
  std::vector<std::string> order;
  for (const Parameter& p : run.network.parameters()) order.push_back(p.name);
  save_training(engine, optimizer, order, a.save, a.form, records_of(run, step));
}

Training run_steps(const Run& run, ShardedEngine& engine, Optimizer& optimizer) {
  Training training;
  Progress progress(run.arguments.steps);
  Interruption interruption;
  for (Index step = steps_before(run) + 1; step <= run.arguments.steps; ++step) {
    ledger().reset();
    note_section(fmt::format("step {}", step), true);
    note_parameters(engine);
    const std::unique_ptr<TrainingBatch> batch =
        run.network.batch(run.arguments.batch, run.arguments.seed, step);
    training.milliseconds.push_back(training_step(run, engine, optimizer, *batch));
    training.figures.add(run, engine, optimizer, step);
    note_section(fmt::format("after step {}", step), false);
    run.network.note(engine, training.journal);
    const double value = batch->loss(run.group);
    training.losses.push_back(value);
    if (std::isfinite(value)) save_if_due(run, engine, optimizer, step);
    interruption.look(run.group, step);
    if (!speaks(run.group)) continue;
    if (!std::isfinite(value))
      refuse(Code::not_finite, "train", "a finite loss", fmt::format("{} at step {}", value, step));
    progress.show(step, value);
  }
  return training;
}

/// Prints the workload's journal, and how the operations are distributed over the devices.
void print_journal(const Run& run, const Training& training) {
  if (!run.network.has_journal()) return;
  Communicator& group = run.group;
  const std::vector<Index> flops = group.exchange("flops", training.figures.all_flops());
  if (!speaks(group)) return;
  fmt::print("{}", for_reader(training.journal.describe()));
  const double mean = std::accumulate(flops.begin(), flops.end(), 0.0) / static_cast<double>(flops.size());
  if (flops.size() > 1)
    fmt::print("  operations in all steps: {:.4g} on the busiest device, {:.4g} on the mean\n",
               static_cast<double>(std::ranges::max(flops)), mean);
}

void print_heading(const Run& run, const Chapter& chapter) {
  const Arguments& a = run.arguments;
  const int devices = run.group.num_devices();
  const std::string heading = fmt::format(
      "{} {}, {}, on {} device{}: {}, batch {}, {} {}{}{}{}", chapter.short_name(), chapter.title,
      run.variant.name, devices, devices == 1 ? "" : "s", run.network.describe(), a.batch, a.optimizer,
      a.learning_rate, a.precision == "float32" ? "" : ", products in " + a.precision,
      a.clip_norm ? fmt::format(", gradients clipped to a norm of {}", *a.clip_norm) : "",
      a.resumed ? fmt::format(", after {} steps of {}", steps_before(run), one_line(a.resume)) : "");
  fmt::print("\n{}\n", for_reader(heading));
}

/// "output, dL/dx and all weight gradients equal the unsharded network's in every bit".
std::string describe_exact(Index max_ulp) {
  if (max_ulp == 0)
    return "output, dL/dx and all weight gradients equal the unsharded network's in every bit";
  const std::string by = is_far(max_ulp) ? "" : fmt::format(": at least one differs by {} ulp", max_ulp);
  return "output, dL/dx and weight gradients are not all the unsharded network's" + by;
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
  report.devices = run.group.num_devices();
  report.layers = run.network.num_layers();
  return report;
}

/// The arguments of the unsharded network's run, which comes later. If this run replaces the checkpoint that
/// it resumes, `kept` keeps that checkpoint's files for the unsharded run.
Arguments arguments_of_reference(const Run& run, std::optional<FolderReplacement>& kept) {
  Arguments arguments = run.arguments;
  const int me = run.group.device_id(), last = run.group.num_devices() - 1;
  std::error_code none_is_there;
  if (!arguments.resumed || (me != 0 && me != last) ||
      !std::filesystem::equivalent(arguments.resume, arguments.save, none_is_there))
    return arguments;
  kept.emplace(arguments.save);
  kept->keep_others(arguments.resume, [](const std::string&) { return false; });
  arguments.resume = kept->folder();
  return arguments;
}

/// Compares the loss curve. Only device 0 knows the result, and shares the wrong step with all.
void compare_curve(Report& report, const Run& run) {
  report.curve = compare_with_unsharded(run, {report.losses, report.decisions});
  const bool is_good = !report.curve || report.curve->is_good();
  if (speaks(run.group)) {
    const std::string line = describe(report.curve, steps_before(run),
                                      static_cast<Index>(report.losses.size()), report.max_ulp == 0);
    fmt::print("{}\n", for_reader("  " + line));
    if (!is_good) note_difference(line);
  }
  const Index wrong_step = run.group.exchange("loss curve", is_good ? 0 : report.curve->wrong_step)[0];
  if (!speaks(run.group) && wrong_step > 0) report.curve = CurveComparison{.wrong_step = wrong_step};
}

/// Trains, and writes the results into the report. Returns the text of `examples` after training.
std::string fill_report(Report& report, const Run& run, ShardedEngine& engine, Optimizer& optimizer) {
  Training training = run_steps(run, engine, optimizer);
  training.figures.gather_into(report, run);
  for (const std::string& line : training.figures.misses(run)) {
    fmt::print("  {}\n", line);
    note_difference(line);
  }
  if (const std::string compare = run.network.yardstick(); speaks(run.group) && !compare.empty())
    fmt::print("{}\n", for_reader("  for comparison: " + compare));
  print_journal(run, training);
  report.losses = training.losses;
  report.decisions = training.journal.decisions();
  report.milliseconds = median(training.milliseconds);
  report.products = products_by();
  return run.network.examples(engine, run.arguments.seed);
}

/// What is saved, the table, and whether all is as it should be. Writes the report, if one is wanted.
void print_end(const Report& report, const Arguments& arguments) {
  if (!arguments.save.empty())
    fmt::print("{}\n",
               for_reader(fmt::format("  saved after step {}: parameters and the optimizer's state, in {}",
                                      arguments.steps, one_line(arguments.save))));
  fmt::print("{}", table(report, output_columns(), arguments.times));
  if (!arguments.report.empty()) write_report(arguments.report, report);
  if (!report.is_good())
    fmt::print("{}\n",
               for_reader("a gradient, a loss or a figure is not what it should be: see the lines above that "
                          "begin with \"differs\", \"loss curve\" or \"device\""));
}

}  // namespace

int train(Communicator& group, const Chapter& chapter, const Variant& variant, const Arguments& arguments) {
  if (speaks(group) && !arguments.report.empty()) require_replaceable(arguments.report);
  if (speaks(group) && !arguments.save.empty()) FolderReplacement can_be_made(arguments.save);
  if (arguments.resumed && !arguments.unverified) verify_digests(group, arguments.resume, *arguments.resumed);
  if (arguments.resumed && arguments.unverified && group.device_id() == 0)
    say_not_verified(arguments.resume, *arguments.resumed);
  const std::shared_ptr<Workload> network = variant.workload->make(arguments.options);
  network->open_data();
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  const Run run{group, variant, *network, arguments};
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  require_room_for_step(group, variant, *network, *engine, arguments);
  const std::unique_ptr<Optimizer> optimizer = optimizer_of(run);
  load_beginning(run, *engine, *optimizer);
  std::optional<FolderReplacement> kept;
  const Arguments of_reference = arguments_of_reference(run, kept);
  if (speaks(group)) print_heading(run, chapter);
  Report report = report_of(run, chapter);
  note_section("exact mode", false);
  report.max_ulp = exact_difference(run);
  if (speaks(group)) fmt::print("{}\n", for_reader("  exact mode: " + describe_exact(report.max_ulp)));

  const std::string before = network->examples(*engine, arguments.seed);
  const std::string after = fill_report(report, run, *engine, *optimizer);
  const std::string last_step = engine->describe_step();
  compare_curve(report, {group, variant, *network, of_reference});
  if (speaks(group)) {
    fmt::print("\n{}\n{}\n  after training\n{}\n",
               for_reader("  before training: " + network->examples_title()), before, after);
    if (!last_step.empty()) fmt::print("{}\n", for_reader(last_step));
    print_end(report, arguments);
  }
  return report.is_good() ? 0 : static_cast<int>(Code::differs);
}

}  // namespace shard
