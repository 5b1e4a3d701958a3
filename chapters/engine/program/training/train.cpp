#include "engine/program/training/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/basics/printable.hpp"
#include "engine/basics/terminal.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/books/products_by.hpp"
#include "engine/files/folder_replacement.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/program/report.hpp"
#include "engine/program/step/exact_check.hpp"
#include "engine/program/step/memory_check.hpp"
#include "engine/program/step/step_figures.hpp"
#include "engine/program/step/unsharded_run.hpp"
#include "engine/program/training/progress.hpp"
#include "engine/program/training/resumption.hpp"

namespace shard {

namespace {

bool speaks(Communicator& group) {
  return group.device_id() == 0;
}

struct Trained {
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

/// After the last step and, with --save-every k, after every k-th step.
bool save_is_due(const TrainCommand& c, Index step) {
  return step == c.training.steps || (c.save_every != 0 && step % c.save_every == 0);
}

void check_and_save(const Run& run, const TrainCommand& c, ShardedEngine& engine, Optimizer& optimizer,
                    Index step) {
  require_finite_parameters(run.group, engine, step);
  if (c.save.empty()) return;
  std::vector<std::string> order;
  for (const Parameter& p : run.network.parameters()) order.push_back(p.name);
  save_training(engine, optimizer, order, c.save, c.form, records_of(run, c.precision, step));
}

/// Reads the losses of the steps. A GPU computes while the host launches. If the host read a loss at once, the GPU would
/// have no work until the next step is launched. So there the host reads a step's loss when it has launched the next step,
/// and a step's time is that from one loss to the next.
class Losses {
 public:
  Losses(const Run& run, Trained& trained) : run_(run), trained_(trained), progress_(run.training.steps) {}

  /// A step that has been launched in so many milliseconds. `is_due`: its loss is needed now.
  void add(Index step, double milliseconds, std::unique_ptr<TrainingBatch> batch, bool is_due) {
    if (unread_) read(*std::exchange(unread_, nullptr), step - 1);
    if (!is_late_) trained_.milliseconds.push_back(milliseconds);
    if (is_late_ && !is_due)
      unread_ = std::move(batch);
    else
      read(*batch, step);
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// \throws Error not_finite, on device 0
  void read(const TrainingBatch& batch, Index step) {
    const double value = batch.loss(run_.group);
    trained_.losses.push_back(value);
    const auto before = std::exchange(last_, Clock::now());
    if (is_late_)
      trained_.milliseconds.push_back(std::chrono::duration<double, std::milli>(last_ - before).count());
    if (!speaks(run_.group)) return;
    if (!std::isfinite(value))
      refuse(Code::not_finite, "train", "a finite loss", fmt::format("{} at step {}", value, step));
    progress_.show(step, value);
  }

  const Run& run_;
  Trained& trained_;
  Progress progress_;
  const bool is_late_ = backend() == "cuda";
  std::unique_ptr<TrainingBatch> unread_;  // of the step before
  Clock::time_point last_ = Clock::now();
};

Trained run_steps(const Run& run, const TrainCommand& command, ShardedEngine& engine, Optimizer& optimizer) {
  Trained trained;
  Losses losses(run, trained);
  Interruption interruption;
  for (Index step = steps_before(run) + 1; step <= run.training.steps; ++step) {
    ledger().reset();
    note_section(fmt::format("step {}", step), true);
    note_parameters(engine);
    std::unique_ptr<TrainingBatch> batch = run.network.batch(run.training.batch, run.training.seed, step);
    const double milliseconds = training_step(run, engine, optimizer, *batch);
    trained.figures.add(run, engine, optimizer, step);
    note_section(fmt::format("after step {}", step), false);
    if (const RoutedNetwork* routed = run.network.routed()) routed->note(engine, trained.journal);
    losses.add(step, milliseconds, std::move(batch), save_is_due(command, step));
    if (save_is_due(command, step)) check_and_save(run, command, engine, optimizer, step);
    interruption.look(run.group, step);
  }
  return trained;
}

/// Prints the workload's journal, and how the operations are distributed over the devices.
void print_journal(const Run& run, const Trained& trained) {
  if (run.network.routed() == nullptr) return;
  Communicator& group = run.group;
  const std::vector<Index> flops = group.exchange("flops", trained.figures.all_flops());
  if (!speaks(group)) return;
  fmt::print("{}", for_reader(trained.journal.describe()));
  const double mean = std::accumulate(flops.begin(), flops.end(), 0.0) / static_cast<double>(flops.size());
  if (flops.size() > 1)
    fmt::print("  operations in all steps: {:.4g} on the busiest device, {:.4g} on the mean\n",
               static_cast<double>(std::ranges::max(flops)), mean);
}

void print_heading(const Run& run, const std::string& precision, const Chapter& chapter) {
  const Training& t = run.training;
  const int devices = run.group.num_devices();
  const std::string heading = fmt::format(
      "{} {}, {}, on {} device{}: {}, batch {}, {} {}{}{}{}", chapter.short_name(), chapter.title,
      run.variant.name, devices, devices == 1 ? "" : "s", run.network.describe(), t.batch, t.optimizer,
      t.learning_rate, precision == "float32" ? "" : ", products in " + precision,
      t.clip_norm ? fmt::format(", gradients clipped to a norm of {}", *t.clip_norm) : "",
      t.resumed ? fmt::format(", after {} steps of {}", steps_before(run), one_line(t.resume)) : "");
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

/// How the unsharded network is trained, later. If this run replaces the checkpoint that it resumes, `kept` keeps that
/// checkpoint's files for the unsharded run.
Training training_of_reference(const Communicator& group, const TrainCommand& command,
                               std::optional<FolderReplacement>& kept) {
  Training training = command.training;
  const int me = group.device_id(), last = group.num_devices() - 1;
  std::error_code none_is_there;
  if (!training.resumed || (me != 0 && me != last) ||
      !std::filesystem::equivalent(training.resume, command.save, none_is_there))
    return training;
  kept.emplace(command.save);
  kept->keep_others(training.resume, [](const std::string&) { return false; });
  training.resume = kept->folder();
  return training;
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

/// Trains, and writes the results into the report. Returns `examples` after training.
Examples fill_report(Report& report, const Run& run, const TrainCommand& command, ShardedEngine& engine,
                     Optimizer& optimizer) {
  Trained trained = run_steps(run, command, engine, optimizer);
  trained.figures.gather_into(report, run);
  for (const std::string& line : trained.figures.misses(run)) {
    fmt::print("  {}\n", line);
    note_difference(line);
  }
  if (const std::string compare = run.network.yardstick(); speaks(run.group) && !compare.empty())
    fmt::print("{}\n", for_reader("  for comparison: " + compare));
  print_journal(run, trained);
  report.losses = trained.losses;
  report.decisions = trained.journal.decisions();
  report.milliseconds = median(trained.milliseconds);
  report.products = products_by();
  report.peak_rate = peak_of_products().value_or(0) * run.group.num_devices();
  return run.network.examples(engine, run.training.seed);
}

/// What is saved, the table, and whether all is as it should be. Writes the report, if one is wanted.
void print_end(const Report& report, const TrainCommand& command) {
  if (!command.save.empty())
    fmt::print("{}\n",
               for_reader(fmt::format("  saved after step {}: parameters and the optimizer's state, in {}",
                                      command.training.steps, one_line(command.save))));
  fmt::print("{}", table(report, output_columns(), command.times));
  if (!command.report.empty()) write_report(command.report, report);
  if (!report.is_good())
    fmt::print("{}\n",
               for_reader("a gradient, a loss or a figure is not what it should be: see the lines above that "
                          "begin with \"differs\", \"loss curve\" or \"device\""));
}

/// Refuses, before anything is made, files that cannot be written, and a checkpoint that is not what was saved.
void check_files(Communicator& group, const TrainCommand& command) {
  if (speaks(group) && !command.report.empty()) require_replaceable(command.report);
  if (speaks(group) && !command.save.empty()) FolderReplacement can_be_made(command.save);
  const std::string& folder = command.training.resume;
  const std::shared_ptr<const Manifest>& resumed = command.training.resumed;
  if (resumed && !command.unverified) verify_digests(group, folder, *resumed);
  if (resumed && command.unverified && group.device_id() == 0) say_not_verified(folder, *resumed);
}

}  // namespace

int TrainCommand::run(Communicator& group, const Chapter& chapter) const {
  check_files(group, *this);
  const Variant& chosen = chapter.variant(variant);
  const std::shared_ptr<Workload> network = chosen.workload->make(options);
  network->open_data();
  if (chosen.require) chosen.require(group.num_devices(), *network, options);
  const Run run{group, chosen, *network, options, training};
  std::unique_ptr<ShardedEngine> engine = chosen.make(group, *network, options);
  require_room_for_step(run, *engine);
  const std::unique_ptr<Optimizer> optimizer = optimizer_of(run);
  load_beginning(run, *engine, *optimizer);
  std::optional<FolderReplacement> kept;
  const Training of_reference = training_of_reference(group, *this, kept);
  if (speaks(group)) print_heading(run, precision, chapter);
  Report result = report_of(run, chapter);
  note_section("exact mode", false);
  result.max_ulp = exact_difference(run);
  if (speaks(group)) fmt::print("{}\n", for_reader("  exact mode: " + describe_exact(result.max_ulp)));

  const Examples before = network->examples(*engine, training.seed);
  const Examples after = fill_report(result, run, *this, *engine, *optimizer);
  const std::string last_step = engine->describe_step();
  compare_curve(result, {group, chosen, *network, options, of_reference});
  if (speaks(group)) {
    fmt::print("\n{}\n{}\n  after training\n{}\n", for_reader("  before training: " + before.title),
               before.drawing, after.drawing);
    if (!last_step.empty()) fmt::print("{}\n", for_reader(last_step));
    print_end(result, *this);
  }
  return result.is_good() ? 0 : static_cast<int>(Code::differs);
}

}  // namespace shard
