#pragma once

/// The worker carries out a schedule on one device. A device sends to the device that has the next stage and
/// the same place on the axes data and tensor. b is the number of this device's rows in a micro-batch.

#include <map>
#include <numeric>
#include <utility>

#include "engine/schedules/interpreter.hpp"
#include "pipeline_stages.hpp"

namespace shard::meshes {

/// One step of training on this device: takes micro-batches of its rows through its stages.
class StageWorker : public Interpreter {
 public:
  using Activation = OnThree<S<0>, O, R>;  // (b, D)   my rows, at one place of pipeline
  using Engine = MeshEngine<PipelineAxes>;

  /// `input` has this device's rows at the place of stage 0, and is empty elsewhere.
  StageWorker(Engine& engine, const BlockStages& stages, Tensor input, Index micro_batches,
              bool wants_input_grad)
      : engine_(engine),
        stages_(stages),
        input_(std::move(input)),
        my_rows_(along().exchange("rows of the input", input_.extent(0))[0]),
        all_rows_(sum(engine.mesh().axis(data::name).exchange("rows of the batch", my_rows_))),
        micro_batches_(micro_batches),
        wants_input_grad_(wants_input_grad),
        addends_(stages.blocks.size()) {}

  /// Carries out this device's part of the schedule. At the place of the last stage, `loss_gradient` is
  /// called; if there is none, the worker keeps the outputs.
  void run(const Schedule& schedule, const LossGradient& loss_gradient) {
    schedule_ = &schedule;
    loss_gradient_ = loss_gradient;
    interpret(schedule, along().device_id(), *this);
  }

  /// Rows of the whole batch.
  Index all_rows() const { return all_rows_; }
  /// The output of the only micro-batch, at the place of the last stage.
  Activation take_output() { return take({Flow::activation, 0, stages_.count}); }
  /// Gives the gradient of that output, which goes back through the stages.
  void give_output_grad(Tensor dout) {
    put({Flow::gradient, 0, stages_.count - 1}, of_micro_batch(std::move(dout), 0));
  }
  /// A block's gradients, summed over micro-batches. They are still to be reduced over data.
  BlockAddends& addends(Index block) { return addends_[static_cast<std::size_t>(block)]; }
  Tensor take_input_grad() { return std::move(dx_); }

 protected:
  void forward(Index m, int s) override {
    Activation x = s == 0 ? of_micro_batch(slice(input_, 0, rows_of(m).begin, rows_of(m).end), m)  // (b, D)
                          : take({Flow::activation, m, s});
    for (Index i = stages_.of(s).begin; i < stages_.of(s).end; ++i) {
      OnThree<S<0>, O, S<1>> h = relu(matmul(x, stages_.block(i).w0));  // (b, f)   (S0, O, R)·(R, O, S1)
      OnThree<S<0>, O, P> out = matmul(h, stages_.block(i).w1);         // (b, D)   (S0, O, S1)·(R, O, S0)
      if (!InferenceMode::is_on()) kept_[{m, s}].push_back({std::move(x), std::move(h)});
      x = engine_.all_reduce<tensor>(std::move(out));  // (b, D)   (S0, O, P) → (S0, O, R)
    }
    if (s + 1 < stages_.count || !loss_gradient_) return put({Flow::activation, m, s + 1}, std::move(x));
    put({Flow::gradient, m, s}, of_micro_batch(loss_gradient_(x.local(), first_row() + rows_of(m).begin), m));
  }

  void backward(Index m, int s) override {
    Activation d = take({Flow::gradient, m, s});
    std::vector<Kept> kept = std::move(kept_.extract({m, s}).mapped());
    for (Index i = stages_.of(s).end; i-- > stages_.of(s).begin; kept.pop_back()) {
      const auto& [x, h] = kept.back();
      const StageBlock& block = stages_.block(i);
      accumulate(addends(i).dw1, matmul(transposed(h), d));         // (f, D)   P over data
      OnThree<S<0>, O, S<1>> dh = matmul(d, transposed(block.w1));  // (b, f)
      OnThree<S<0>, O, S<1>> dz = relu_backward(std::move(dh), h);  // (b, f)
      accumulate(addends(i).dw0, matmul(transposed(x), dz));        // (D, f)   P over data
      if (i == 0 && !wants_input_grad_) return;
      d = engine_.all_reduce<tensor>(matmul(dz, transposed(block.w0)));  // (b, D)   (S0, O, P) → (S0, O, R)
    }
    pass_back(m, s, std::move(d));
  }

  void post_send(const Message& m) override {
    sends_.emplace(m, along().post_send(schedule_->receiver(m), take(m).local()));
  }
  void post_receive(const Message& m) override {
    const Shape shape = {rows_of(m.micro_batch).size(), width()};
    receives_.emplace(m, along().post_receive(schedule_->sender(m), shape));
  }
  void wait_sent(const Message& m) override { sends_.extract(m).mapped().wait(); }
  void wait_received(const Message& m) override {
    put(m, of_micro_batch(receives_.extract(m).mapped().get(), m.micro_batch));
  }

 private:
  /// What the backward pass of a block needs.
  struct Kept {
    Activation x;              // (b, D)
    OnThree<S<0>, O, S<1>> h;  // (b, f)
  };
  using Piece = std::pair<Index, int>;  // micro-batch and stage

  void pass_back(Index m, int s, Activation d) {
    if (s > 0) return put({Flow::gradient, m, s - 1}, std::move(d));
    if (dx_.size() == 0) dx_ = Tensor::uninitialized(input_.shape());  // all my rows
    assign(Rows(dx_, rows_of(m).begin, rows_of(m).end), d.local());
  }

  static Index sum(const std::vector<Index>& numbers) {
    return std::accumulate(numbers.begin(), numbers.end(), Index{0});
  }
  Communicator& along() const { return engine_.mesh().axis(pipeline::name); }
  /// D: a stage's input is a block's input.
  Index width() const { return stages_.block(0).w0.global_shape()[0]; }
  Range piece(Index rows, Index m) const {
    return part(rows, static_cast<int>(micro_batches_), static_cast<int>(m));
  }
  /// Of the rows of this device.
  Range rows_of(Index m) const { return piece(my_rows_, m); }
  /// Of this device, in the batch.
  Index first_row() const {
    const Mesh& mesh = engine_.mesh();
    return part(all_rows_, mesh.size(data::name), mesh.place(data::name)).begin;
  }
  /// Each device along data cuts its own rows. A micro-batch has these pieces of all of them.
  Activation of_micro_batch(Tensor mine, Index m) const {
    const int places = engine_.mesh().size(data::name);
    Index rows = 0;
    for (int k = 0; k < places; ++k) rows += piece(part(all_rows_, places, k).size(), m).size();
    return {engine_.mesh(), std::move(mine), {rows, width()}};
  }
  void put(const Message& m, Activation t) { values_.insert_or_assign(m, std::move(t)); }
  Activation take(const Message& m) { return std::move(values_.extract(m).mapped()); }

  Engine& engine_;
  const BlockStages& stages_;
  Tensor input_;  // (rows, D) where stage 0 is
  Index my_rows_, all_rows_;
  Index micro_batches_;
  bool wants_input_grad_;
  const Schedule* schedule_ = nullptr;
  LossGradient loss_gradient_;
  std::vector<BlockAddends> addends_;  // of each block; those of other places stay empty
  Tensor dx_;                          // (rows, D) where stage 0 is
  std::map<Message, Activation> values_;
  std::map<Piece, std::vector<Kept>> kept_;
  std::map<Message, Future<>> sends_;
  std::map<Message, Future<Tensor>> receives_;
};

}  // namespace shard::meshes
