#include "engine/program/training/step.hpp"

#include <chrono>

#include "engine/checkpoints/training_checkpoint.hpp"
#include "engine/engines/gradient_norm.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

double training_step(const Run& run, ShardedEngine& engine, Optimizer& optimizer, TrainingBatch& batch) {
  using std::chrono::steady_clock;
  Tensor input = batch.input(engine.input_rows(run.arguments.batch));
  const auto start = steady_clock::now();
  Gradients gradients = engine.forward_backward(std::move(input), [&](const Tensor& out, Index first_row) {
    return batch.loss_gradient(out, first_row);
  });
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

}  // namespace shard
