#pragma once

/// An engine whose blocks are divided, as in a pipeline: what layers.hpp and t5_layers.hpp share. Each device has a
/// stage of the network. The sequences of a batch follow one another in micro-batches, so that all devices have work
/// (1F1B: Narayanan et al. 2019, "PipeDream", section 3.2).

#include "engine/schedules/checker.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/schedules/stage_worker.hpp"
#include "engine/schedules/timeline.hpp"
#include "layers_split.hpp"

namespace shard::decoders {

/// `Part` is what a device does with micro-batches (StageWorker). It has, beside that:
///     Index rows();                                  of the losses of the whole batch, (T, 1)
///     static Owned& losses(Value& value);            those of the last stage's output, and in its gradient
///     OwnedSums sums;
template <class Part>
class StagedModel : public LanguageModel {
 public:
  StagedModel(Communicator& group, Index micro_batches)
      : LanguageModel(group),
        schedule_(with_messages(num_devices(), micro_batches,
                                one_forward_one_backward(num_devices(), micro_batches))) {
    check(schedule_);
  }

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<Worker>(begin(input, 1));
    worker->run(one_micro_batch(Action::Kind::forward, num_devices(), num_devices()), {});
    Tensor mine;
    if (device_id() == last()) {
      auto output = worker->take_output();
      mine = std::move(Part::losses(output)).local();
    }
    Owned losses(group(), std::move(mine), {worker->part.rows(), 1}, last());  // (T, 1)
    tape_.push(std::move(worker));
    return losses;
  }

  /// ## Backward
  Gradients backward(Tensor dloss) override {
    auto [worker] = tape_.pop();
    if (device_id() == last()) {
      typename Part::Value d;
      Part::losses(d) = Owned::mine(group(), std::move(dloss));  // (T, 1)
      worker->give_output_grad(std::move(d));
    }
    worker->run(one_micro_batch(Action::Kind::backward, num_devices(), num_devices()), {});
    return summed(worker->part.sums);
  }

  /// ## A step by its schedule
  /// Training uses this: all devices work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    Worker worker = begin(input, schedule_.micro_batches);
    worker.run(schedule_, loss_gradient);
    return summed(worker.part.sums);
  }
  std::string describe_step() override { return describe(schedule_); }

 protected:
  using Worker = StageWorker<Part>;

  int last() const { return num_devices() - 1; }
  /// A batch on its way: micro-batches that follow one another.
  virtual Worker begin(const Tensor& input, Index micro_batches) = 0;
  /// The gradients by name, with their owners. Those of a table that several devices read are added on its owner.
  virtual Gradients summed(OwnedSums& sums) = 0;

 private:
  Schedule schedule_;
  Tape<std::unique_ptr<Worker>> tape_;
};

}  // namespace shard::decoders
