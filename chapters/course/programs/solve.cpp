///     mpirun --oversubscribe -n 3 build/course/solve.03_tensor_parallel FOLDER OUT
///
/// Lets an engine of the chapter solve a problem, and writes what each device holds into OUT. FOLDER has
/// job.json, {"variant": "column-row", "options": {"--mesh": ".."}, "steps": 1, "input_grad": true},
/// params.safetensors and batch.safetensors. Between steps, the optimizer `integer` updates the parameters.
/// Results are those of the last step.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/engines/optimizer.hpp"
#include "engine/files/json_file.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/program/registry.hpp"
#include "parts.hpp"

namespace shard::course {

namespace {

struct Job {
  std::string variant;
  Options options;
  Index steps = 1;
  bool input_grad = true;
};

Job read_job(const std::string& folder) {
  const nlohmann::json text = read_json_object(folder + "/job.json");
  Job job{text.at("variant"), {}, text.at("steps"), text.at("input_grad")};
  for (const auto& [name, value] : text.at("options").items()) job.options.set(name, value);
  return job;
}

/// The rows of the output that a device computes, in the pieces in which it computes them.
class OutputRows {
 public:
  void add(const Tensor& piece, Index first_row) { pieces_[first_row] = {piece.shape(), piece.to_host()}; }
  /// All of them below one another; pieces follow one another.
  void move_to(Parts& parts) {
    if (pieces_.empty()) return;
    Part whole{{pieces_.begin()->first, 0}, {{0, pieces_.begin()->second.shape.at(1)}, {}}};
    for (const auto& [row, piece] : pieces_) {
      whole.values.shape[0] += piece.shape[0];
      whole.values.values.insert(whole.values.values.end(), piece.values.begin(), piece.values.end());
    }
    parts.add("output", std::move(whole));
  }

 private:
  std::map<Index, HostTensor> pieces_;  // by first row
};

/// What a step sent, what it held at most before the optimizer and in its step, and what it holds in the end.
struct Figures {
  Traffic sent;
  Index held = 0, held_by_update = 0, kept = 0, operations = 0;
  std::map<Purpose, Index> held_for;  // at most, each at its own time

  void add_to(Parts& parts) const {
    parts.add_figures(sent);
    parts.add_figure("held", held);
    for (const auto& [purpose, bytes] : held_for)
      parts.add_figure(fmt::format("held as {}", name(purpose)), bytes);
    parts.add_figure("held by the update", held_by_update);
    parts.add_figure("kept", kept);
    parts.add_figure("operations", operations);
  }
};

/// An engine of the chapter, and the problem that it solves.
class Solver {
 public:
  Solver(Communicator& group, const std::string& folder)
      : job_(read_job(folder)),
        variant_(only_chapter().variant(job_.variant)),
        params_(open_checkpoint(folder + "/params.safetensors")),
        network_(variant_.workload->read(*params_, job_.options)),
        batch_(
            network_->given_batch(open_checkpoint(folder + "/batch.safetensors"), [](Index) { return ""; })) {
    if (variant_.require) variant_.require(group.num_devices(), *network_, job_.options);
    engine_ = variant_.make(group, *network_, job_.options);
    engine_->load_checkpoint(*params_);
    engine_->want_input_grad(job_.input_grad);
    if (network_->kind().has_tokens()) batch_->watch(*engine_);
  }

  void solve(const std::string& out) {
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(
        "integer", 0, [&](const std::string& name) { return network_->must_stay(name); },
        network_->gradient_unit());
    for (Index step = 1; step < job_.steps; ++step) optimizer->step(*engine_, gradients());
    Parts parts;
    const Gradients last = gradients();
    for (const auto& [name, gradient] : last) parts.add(name, gradient);
    rows_.move_to(parts);
    figures_.sent = ledger().traffic();
    ledger().reset();
    optimizer->step(*engine_, last);
    figures_.sent += ledger().traffic();
    figures_.held_by_update = ledger().peak();
    figures_.kept = ledger().live();
    figures_.add_to(parts);
    parts.describe(engine_->describe_step());
    if (network_->kind().has_tokens()) add_tokens(parts);
    parts.write(out, engine_->device_id());
  }

 private:
  Gradients gradients() {
    rows_ = {};
    ledger().reset();
    Tensor input = batch_->input(engine_->input_rows(batch_->rows()));
    const bool has_tokens = network_->kind().has_tokens();
    Gradients found = engine_->forward_backward(std::move(input), [&](const Tensor& out, Index first_row) {
      if (!has_tokens) rows_.add(out, first_row);
      return batch_->output_grad(out, first_row);
    });
    figures_.held = ledger().peak();
    for (int p = 0; p < num_purposes; ++p)
      figures_.held_for[static_cast<Purpose>(p)] = ledger().peak(static_cast<Purpose>(p));
    figures_.operations = ledger().flops();
    return found;
  }
  /// Logits and loss, which device 0 has whole.
  void add_tokens(Parts& parts) {
    for (auto& [name, whole] : batch_->results(engine_->group()))
      if (engine_->device_id() == 0) parts.add(name, {Shape(whole.shape.size(), 0), whole});
  }

  const Job job_;
  const Variant& variant_;
  const std::unique_ptr<Checkpoint> params_;
  const std::shared_ptr<Workload> network_;
  const std::unique_ptr<GivenBatch> batch_;
  std::unique_ptr<ShardedEngine> engine_;
  OutputRows rows_;
  Figures figures_;
};

}  // namespace

void run(Communicator& world, const std::string& folder, const std::string& out) {
  Solver(world, folder).solve(out);
}

}  // namespace shard::course
