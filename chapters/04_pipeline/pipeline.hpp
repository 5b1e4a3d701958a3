#pragma once

///     ./chapters/run 04 -n 4 train --variant 1f1b --micro-batches 8
///
/// The layers are divided: each device has a stage, which is a number of consecutive layers (with
/// `interleaved`, several stages). Each stage sends its activations to the next one, and gradients go back. A
/// whole batch would keep one device busy at a time, so it is cut into micro-batches that follow one another.
/// A schedule (engine/schedules/schedules.hpp) says in which order each device works on them, and a small
/// worker (worker.hpp) carries it out (Huang et al. 2019, "GPipe"; Narayanan et al. 2019, 2021).
/// Builds on: 01_single_device.

#include <functional>
#include <memory>

#include "engine/schedules/checker.hpp"
#include "engine/schedules/conveyor.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/schedules/timeline.hpp"
#include "stages.hpp"
#include "worker.hpp"

namespace shard::pipeline {

/// What defines a pipeline: its schedule, and how the layers are cut into stages.
struct PipelinePlan {
  std::function<Work(int devices, Index micro_batches)> work;
  Index micro_batches = 1;
  int virtual_stages = 1;        ///< stages on each device
  std::string stages = "equal";  ///< how layers are cut into stages; see cut_into_stages
};

class Pipeline : public ShardedEngine {
 public:
  Pipeline(Communicator& group, PipelinePlan plan) : ShardedEngine(group), plan_(std::move(plan)) {}

  /// ## What this device owns
  /// The layers of its stages, whole: L/N of them. Of the other layers it knows the shape and the owner.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const int count = num_devices() * plan_.virtual_stages;
    stages_ = {cut_into_stages(model_of(checkpoint), count, plan_.stages), {}};
    for (int s = 0; s < count; ++s)
      for (Index l = stages_.of(s).begin; l < stages_.of(s).end; ++l)
        stages_.weights.push_back(load_owned(checkpoint, layer_name(l), s % num_devices()));
    schedule_ = with_messages(count, plan_.micro_batches, plan_.work(num_devices(), plan_.micro_batches));
    check(schedule_);
  }

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<Worker>(begin(std::move(input), 1));
    worker->run(one_micro_batch(Action::Kind::forward, num_devices(), stages_.count()), {});
    const Shape shape = {worker->rows(), stages_.width(stages_.count())};  // (B, D)
    Owned out(group(), last_device() == device_id() ? worker->take_output() : Tensor(), shape, last_device());
    tape_.push(std::move(worker));
    return out;
  }

  /// ## Backward
  Gradients backward(Tensor dout) override {
    auto [worker] = tape_.pop();
    if (last_device() == device_id()) worker->give_output_grad(std::move(dout));  // (B, D)
    worker->run(one_micro_batch(Action::Kind::backward, num_devices(), stages_.count()), {});
    return gradients_of(*worker);
  }

  /// ## A step by its schedule
  /// Training uses this: all stages work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    Worker worker = begin(std::move(input), plan_.micro_batches);
    worker.run(schedule_, loss_gradient);
    work_ = worker.work();
    return gradients_of(worker);
  }

  /// ## Inference
  /// Requests follow one another, in groups of N, one for each device. A group goes through the first stage
  /// of every device, then, if devices have several stages, through the second ones, and so on. For each
  /// request that device 0 sends off, it takes back one result of the group before. An empty tensor marks the
  /// end of the input; each device passes it on.
  void inference_loop(InputStream& input, OutputStream& output) override {
    InferenceMode no_tape;
    Conveyor conveyor(group(), num_devices());
    Index due = 0;  // results that device 0 has not received yet
    auto write_result = [&] { output.write(conveyor.take_from(last_device())), --due; };
    for (bool goes_on = true; goes_on;) {
      Index requests = 0;
      for (; requests < num_devices(); ++requests) {
        Tensor a = device_id() == 0 ? input.next().value_or(Tensor()) : conveyor.take_from(device_id() - 1);
        goes_on = a.size() > 0;
        if (!goes_on) break;
        infer(std::move(a), device_id(), conveyor);
        if (due > 0) write_result();
      }
      if (!goes_on && device_id() + 1 < num_devices()) conveyor.pass_on(device_id() + 1, Tensor());
      while (due > 0) write_result();  // where this group is smaller than the one before
      for (int s = device_id() + num_devices(); s < stages_.count(); s += num_devices())
        for (Index i = 0; i < requests; ++i) infer(conveyor.take_from(stages_.device_of(s - 1)), s, conveyor);
      if (device_id() == 0) due = requests;
    }
    while (due > 0) write_result();
    conveyor.finish();
  }

  Placement input_layout() const override { return Placement::owned(0); }

  Trainables trainable() override { return layers(stages_.weights); }

  /// A drawing of the schedule that ran.
  std::string describe_step() override { return describe(schedule_, work_of_all(group(), work_)); }

 private:
  Index num_layers() const { return static_cast<Index>(stages_.weights.size()); }
  int last_device() const { return stages_.device_of(stages_.count() - 1); }

  /// Only device 0 has the rows, so it tells the others how many there are.
  Worker begin(Tensor input, Index micro_batches) {
    const Index rows = group().exchange("rows of the input", input.extent(0))[0];
    return {group(), stages_, std::move(input), rows, micro_batches, wants_input_grad()};
  }

  /// The gradients by name, with their owners. A device lists every gradient, also those of other devices.
  Gradients gradients_of(Worker& worker) {
    Gradients gradients;
    for (Index l = num_layers(); l-- > 0;) {
      const Owned& w = stages_.weight(l);
      gradients.put(layer_name(l), w.is_mine() ? worker.take_weight_grad(l)
                                               : Owned(group(), Tensor(), w.global_shape(), w.owner()));
    }
    if (wants_input_grad())  // (B, D)
      gradients.put(Gradients::input_grad,
                    Owned(group(), worker.take_input_grad(), {worker.rows(), stages_.width(0)}, 0));
    return gradients;
  }

  void infer(Tensor a, int stage, Conveyor& conveyor) {
    Owned out =
        through_stage(stages_, stage, Owned::mine(group(), std::move(a)), nullptr);  // (b, D) or (b, F)
    conveyor.pass_on((stage + 1) % num_devices(), std::move(out).local());  // from the last stage to device 0
  }

  PipelinePlan plan_;
  Stages stages_;
  Schedule schedule_;
  ForwardWork work_;  // of the last step, on this device
  Tape<std::unique_ptr<Worker>> tape_;
};

}  // namespace shard::pipeline
