#pragma once

#include "engine/schedules/checker.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/schedules/stage_worker.hpp"
#include "engine/schedules/timeline.hpp"

namespace shard {

/// A pipeline of chapters 08 and 09: its devices, or those along an axis of its mesh, have the network's stages.
/// Base is the class that engines of the workload derive from. `Part` computes a device's stages (StageWorker).
template <class Part, std::derived_from<ShardedEngine> Base>
class StagedEngine : public Base {
 public:
  using Base::Base;

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<Worker>(begin(input, 1));
    worker->run(one_micro_batch(Action::Kind::forward, places(), num_stages()), {});
    Placed output = output_of(*worker);
    tape_.push(std::move(worker));
    return output;
  }

  /// ## Backward
  Gradients backward(Tensor dout) override {
    auto [worker] = tape_.pop();
    if (is_at_end()) worker->give_output_grad(output_gradient_of(worker->part, std::move(dout)));
    worker->run(one_micro_batch(Action::Kind::backward, places(), num_stages()), {});
    return gradients_of(worker->part);
  }

  /// ## A step by its schedule
  /// Training uses this: all devices work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    Worker worker = begin(input, micro_batches_);
    before_step(worker.part);
    worker.run(schedule_, loss_gradient);
    return gradients_of(worker.part);
  }
  std::string describe_step() override { return describe(schedule_); }

 protected:
  using Worker = StageWorker<Part>;

  /// \name What an engine defines
  /// @{
  /// The devices of the pipeline.
  virtual Communicator& along() { return this->group(); }
  /// The number of stages on all devices together.
  virtual int num_stages() { return places(); }
  /// Makes the worker for a batch that is cut into micro-batches. May move the input.
  virtual Worker begin(Tensor& input, Index micro_batches) = 0;
  /// The output of a forward pass. The worker of the last stage has it. Called on all devices.
  virtual Placed output_of(Worker& worker) = 0;
  /// The gradient for the last stage, from dL/dout.
  virtual typename Part::Value output_gradient_of(Part& part, Tensor dout) = 0;
  virtual Gradients gradients_of(Part& part) = 0;
  /// Called before a step. May set another schedule for this batch.
  virtual void before_step(const Part&) {}
  /// @}

  int places() { return along().num_devices(); }
  bool is_at_end() { return along().device_id() == places() - 1; }
  /// Sets the schedule of the next steps. \throws Error internal for a wrong schedule
  void set_schedule(Index micro_batches, const Work& work) {
    schedule_ = with_messages(num_stages(), micro_batches, work);
    check(schedule_);
  }

  Index micro_batches_ = 1;  // in a step

 private:
  Schedule schedule_;
  Tape<std::unique_ptr<Worker>> tape_;
};

}  // namespace shard
