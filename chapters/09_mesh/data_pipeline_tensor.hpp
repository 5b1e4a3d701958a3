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

#include "engine/basics/ranges.hpp"
#include "engine/schedules/staged_engine.hpp"
#include "pipeline_part.hpp"

namespace shard::meshes {

/// The schedule of the places on the axis pipeline, and into how many pieces a device cuts its rows.
struct StagePlan {
  std::function<Work(int places, Index micro_batches)> work;
  Index micro_batches = 1;
  int virtual_stages = 1;  ///< stages at each place
};

class DataPipelineTensor : public StagedEngine<PipelinePart, MeshEngine<PipelineAxes>> {
 public:
  DataPipelineTensor(Communicator& group, const MeshShape& shape, StagePlan plan)
      : StagedEngine(group, shape), plan_(std::move(plan)) {
    micro_batches_ = plan_.micro_batches;
  }

  /// ## What this device owns
  /// Of each block of its stages, a part of the columns of the first layer and of the rows of the second.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const int count = places() * plan_.virtual_stages;
    stages_ = {count, std::vector<StageBlock>(static_cast<std::size_t>(layers_in_blocks(checkpoint) / 2))};
    for (Index i = 0; i < num_blocks(); ++i) {
      const int at = part_with(num_blocks(), count, i) % places();
      stages_.blocks[static_cast<std::size_t>(i)] = {
          load_at<R, O, S<1>>(at, checkpoint, layer_name(2 * i)),
          load_at<R, O, S<0>>(at, checkpoint, layer_name(2 * i + 1))};
    }
    set_schedule(micro_batches_, plan_.work(places(), micro_batches_));
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
    return "device k: all devices at place k of the axis pipeline\n" + StagedEngine::describe_step();
  }

 private:
  Communicator& along() override { return mesh().axis(pipeline::name); }
  int num_stages() override { return stages_.count; }
  Index num_blocks() const { return static_cast<Index>(stages_.blocks.size()); }

  /// Only the place of stage 0 has the rows, so it tells the others how many there are.
  Worker begin(Tensor& input, Index micro_batches) override {
    const Index my_rows = along().exchange("rows of the input", input.extent(0))[0];
    std::vector<Index> rows = mesh().axis(data::name).exchange("rows of the batch", my_rows);
    PipelinePart part{*this, stages_, std::move(input), std::move(rows), micro_batches, wants_input_grad()};
    part.addends.resize(stages_.blocks.size());
    return {along(), std::move(part)};
  }
  Placed output_of(Worker& worker) override {
    const Shape shape = {worker.part.all_rows(), stages_.width()};  // (B, D)
    return is_at_end() ? worker.take_output() : On<S<0>, O, R>::elsewhere(mesh(), shape, places() - 1);
  }
  On<S<0>, O, R> output_gradient_of(PipelinePart& part, Tensor dout) override {
    return part.value_of(std::move(dout), 0);  // (b, D)
  }

  /// The gradients by name, also of blocks at other places, where this device holds nothing.
  Gradients gradients_of(PipelinePart& part) override {
    Gradients gradients;
    for (Index i = num_blocks(); i-- > 0;) {
      const auto& [w0, w1] = stages_.block(i);
      auto& [dw0, dw1] = part.addends[static_cast<std::size_t>(i)];
      gradients.put(layer_name(2 * i + 1), reduced(std::move(dw1), w1));  // (P, O, S0) → (R, O, S0)
      gradients.put(layer_name(2 * i), reduced(std::move(dw0), w0));      // (P, O, S1) → (R, O, S1)
    }
    const Shape shape = {part.all_rows(), stages_.width()};  // (B, D)
    using Dx = On<S<0>, O, R>;
    if (wants_input_grad())
      gradients.put(Gradients::input_grad, along().device_id() == 0 ? Dx(mesh(), std::move(part.dx), shape)
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
};

}  // namespace shard::meshes
