#include "engine/basics/printable.hpp"
#include "engine/device/books/memory.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/default_network.hpp"
#include "engine/program/step/memory_check.hpp"
#include "engine/program/training/resumption.hpp"
#include "engine/program/training/train.hpp"

namespace shard {

namespace {

void add_training(const CommandLine& line, Training& training) {
  add_optimizer_name(line, training.optimizer);
  add(line.app, "--learning-rate", "X", training.learning_rate, "Step size", positive_real())
      ->capture_default_str();
  add(line.app, "--clip-norm", "X", training.clip_norm,
      "Scale the gradients down, before each step, where the norm of all of them together is larger",
      positive_double());
  add(line.app, "--seed", "N", training.seed, "Of initial weights and of the data", whole_number())
      ->capture_default_str();
}

}  // namespace

void TrainCommand::add_options(const CommandLine& line) {
  DeclaredOptions declared = add_engine_options(line, *this);
  add(line.app, "--steps", "N", training.steps, "Optimizer steps", positive())
      ->default_str(usual(line.chapter, &TrainingDefaults::steps));
  add_rows(line, training.batch, "Rows of the global batch");
  declared.add_sizes();
  add_training(line, training);
  add(line.app, "--report", "FILE", report, "Also write the figures to this JSON file", path());
  add_record(line, *this);
  add(line.app, "--record-steps", "N", record_steps, "How many of the first steps the record has", positive())
      ->capture_default_str();
  line.app.add_flag(
      "--times", times,
      "Also print how long a step takes, and the rate of its products: times here are this machine's");
  add_saving(line, "--save", "Save parameters and the optimizer's state here after the last step", save,
             form);
  add(line.app, "--save-every", "N", save_every, "Save after every N-th step, too", positive());
  add(line.app, "--resume", "DIR", training.resume,
      "Go on from this checkpoint, with the options that it had", path());
  add_verification(line, unverified);
}

void TrainCommand::complete(const CommandLine& line) {
  take_recorded_options(line, *this);
  take_usual(line, *this, "--batch", &TrainingDefaults::batch, training.batch);
  take_usual(line, *this, "--steps", &TrainingDefaults::steps, training.steps);
  const Manifest* resumed = training.resumed.get();
  if (resumed != nullptr && training.steps <= resumed->training->step)
    throw Error(Code::usage, "--steps: expected more than the {} that {} has made, given {}",
                resumed->training->step, printable(training.resume, 200), training.steps);
  if (save_every > 0 && save.empty())
    throw Error(Code::usage, "--save-every: expected with --save, which names the folder, given alone");
  Command::complete(line);
  const Variant& chosen = line.chapter.variant(variant);
  if (tensors_have_elements())
    require_room_for_parameters(line.group, *network_of(*chosen.workload, options), training);
  options = with_default_network(line.group.num_devices(), line.chapter, chosen, options);
}

void TrainCommand::describe(Entry& job, const Chapter& chapter) const {
  job["network"] = network_of(*chapter.variant(variant).workload, options)->describe();
  job["batch"] = training.batch;
  job["optimizer"] = training.optimizer;
  job["seed"] = training.seed;
}

}  // namespace shard
