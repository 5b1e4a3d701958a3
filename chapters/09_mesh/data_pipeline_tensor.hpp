#pragma once

///     ./chapters/run 09 -n 8 train --variant data-pipeline-tensor --layers 4
///
/// Data, pipeline and tensor parallel at once. The blocks of the network are divided over the axis pipeline:
/// each place on it has one stage or several. Within a stage, the devices along data and tensor do what they
/// do without a pipeline (data_tensor.hpp). Activations go along pipeline as in chapter 04, in micro-batches
/// and by one of its schedules, between devices that have the same place on the other axes. Gradients of
/// weights are summed over micro-batches first. One all-reduce over data after the last micro-batch sums
/// them over the batch (Narayanan et al. 2021, section 3).
/// Builds on: 09_mesh/data_tensor.hpp, 04_pipeline/pipeline.hpp.

#include <functional>
#include <memory>

#include "engine/schedules/checker.hpp"
#include "engine/schedules/timeline.hpp"
#include "pipeline_worker.hpp"

namespace shard::meshes {

/// The schedule of the places on the axis pipeline, and into how many pieces a device cuts its rows.
struct StagePlan {
  std::function<Work(int places, Index micro_batches)> work;
  Index micro_batches = 1;
  int virtual_stages = 1;  ///< stages at each place
};

class DataPipelineTensor : public MeshEngine<PipelineAxes> {
 public:
  DataPipelineTensor(Communicator& group, const MeshShape& shape, StagePlan plan)
      : MeshEngine(group, shape), plan_(std::move(plan)) {}

  /// ## What this device owns
  /// Of each block of its stages, a part of the columns of the first layer and of the rows of the second.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_blocks = layers_in_blocks(checkpoint) / 2;
    stages_ = {places() * plan_.virtual_stages, {}};
    for (int s = 0; s < stages_.count; ++s)
      for (Index i = blocks_of(num_blocks, stages_.count, s).begin;
           i < blocks_of(num_blocks, stages_.count, s).end; ++i)
        stages_.blocks.push_back({load_at<R, O, S<1>>(s % places(), checkpoint, layer_name(2 * i)),
                                  load_at<R, O, S<0>>(s % places(), checkpoint, layer_name(2 * i + 1))});
    schedule_ = with_messages(stages_.count, plan_.micro_batches, plan_.work(places(), plan_.micro_batches));
    check(schedule_);
  }

  /// ## Forward
  /// All rows go through the stages as one micro-batch.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<StageWorker>(begin(std::move(input), 1));
    worker->run(one_batch(Action::Kind::forward), {});
    const Shape shape = {worker->all_rows(), stages_.block(0).w0.global_shape()[0]};  // (B, D)
    On<S<0>, O, R> out = place() == places() - 1 ? worker->take_output()
                                                 : On<S<0>, O, R>::elsewhere(mesh(), shape, places() - 1);
    tape_.push(std::move(worker));
    return out;
  }

  /// ## Backward
  Gradients backward(Tensor dout) override {
    auto [worker] = tape_.pop();
    if (place() == places() - 1) worker->give_output_grad(std::move(dout));  // (b, D)
    worker->run(one_batch(Action::Kind::backward), {});
    return gradients_of(*worker);
  }

  /// ## A step by its schedule
  /// Training uses this: all stages work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    StageWorker worker = begin(std::move(input), plan_.micro_batches);
    worker.run(schedule_, loss_gradient);
    return gradients_of(worker);
  }

  /// My rows, at the place of stage 0.
  Placement input_layout() const override { return placement<S<0>, O, R>(0); }

  /// The layers of my stages.
  Trainables trainable() override {
    Trainables mine;
    for (Index i = 0; i < num_blocks(); ++i) {
      StageBlock& block = stages_.blocks[static_cast<std::size_t>(i)];
      if (!block.w0.is_mine()) continue;
      mine.add(layer_name(2 * i), block.w0);
      mine.add(layer_name(2 * i + 1), block.w1);
    }
    return mine;
  }

  /// A drawing of the schedule that ran.
  std::string describe_step() override {
    return "device k: all devices at place k of the axis pipeline\n" + describe(schedule_);
  }

 private:
  int places() { return mesh().size(pipeline::name); }
  int place() { return mesh().place(pipeline::name); }
  Index num_blocks() const { return static_cast<Index>(stages_.blocks.size()); }

  StageWorker begin(Tensor input, Index micro_batches) {
    return {*this, stages_, std::move(input), micro_batches, wants_input_grad()};
  }

  /// A schedule that takes one micro-batch forward through all stages, or backward through all.
  Schedule one_batch(Action::Kind kind) {
    Work work(static_cast<std::size_t>(places()));
    for (int i = 0; i < stages_.count; ++i) {
      const int s = kind == Action::Kind::forward ? i : stages_.count - 1 - i;
      work[static_cast<std::size_t>(s % places())].push_back({kind, 0, s});
    }
    return with_messages(stages_.count, 1, work);
  }

  /// The gradients by name, also of blocks at other places, where this device holds nothing.
  Gradients gradients_of(StageWorker& worker) {
    Gradients gradients;
    for (Index i = num_blocks(); i-- > 0;) {
      const auto& [w0, w1] = stages_.block(i);
      auto& [dw0, dw1] = worker.addends(i);
      gradients.put(layer_name(2 * i + 1), reduced(std::move(dw1), w1));  // (P, O, S0) → (R, O, S0)
      gradients.put(layer_name(2 * i), reduced(std::move(dw0), w0));      // (P, O, S1) → (R, O, S1)
    }
    const Shape shape = {worker.all_rows(), stages_.block(0).w0.global_shape()[0]};  // (B, D)
    using Dx = On<S<0>, O, R>;
    if (wants_input_grad())
      gradients.put(Gradients::input_grad, place() == 0 ? Dx(mesh(), worker.take_input_grad(), shape)
                                                        : Dx::elsewhere(mesh(), shape, 0));
    return gradients;
  }

  /// The gradient of a weight: the sum over data, where the weight lies.
  template <class Addend, class Weight>
  Weight reduced(Addend addend, const Weight& w) {
    if (!w.is_mine()) return Weight::elsewhere(mesh(), w.global_shape(), w.owner());
    return all_reduce<data>(std::move(addend));
  }

  StagePlan plan_;
  BlockStages stages_;
  Schedule schedule_;
  Tape<std::unique_ptr<StageWorker>> tape_;
};

}  // namespace shard::meshes
