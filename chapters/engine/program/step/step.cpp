#include "engine/program/step/step.hpp"

#include <chrono>

#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/device/books/doing.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/this_device.hpp"
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
  Tensor input = batch.input(engine.input_rows(run.training.batch));
  const auto start = steady_clock::now();
  Gradients gradients = gradients_of_batch(engine, std::move(input), [&](const Tensor& out, Index first_row) {
    return batch.loss_gradient(out, first_row);
  });
  const Doing::Within within(Phase::optimizer);
  if (run.training.clip_norm) clip_gradients(run.group, gradients, *run.training.clip_norm);
  optimizer.step(engine, gradients);
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

void load_beginning(const Run& run, ShardedEngine& engine, Optimizer& optimizer) {
  const Training& t = run.training;
  if (t.resumed)
    load_training(engine, optimizer, t.resume, *t.resumed);
  else
    engine.load_checkpoint(*generate_checkpoint(run.network.parameters(), t.seed));
}

Index steps_before(const Run& run) {
  return run.training.resumed ? run.training.resumed->training->step : 0;
}

std::unique_ptr<Optimizer> optimizer_of(const Run& run) {
  return make_optimizer(
      run.training.optimizer, run.training.learning_rate,
      [&network = run.network](const std::string& parameter) { return network.must_stay(parameter); },
      run.network.gradient_unit());
}

Index state_per_element(const Training& training) {
  return make_optimizer(training.optimizer, training.learning_rate, [](const std::string&) { return false; })
      ->state_per_element();
}

}  // namespace shard
