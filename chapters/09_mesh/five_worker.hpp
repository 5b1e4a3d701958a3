#pragma once

/// The worker that carries out a pipeline's schedule on five axes: it takes the micro-batches of this
/// device's sequences through its stage. It sends to the device that has the next stage, and the same place
/// on the other axes. (Part of five.hpp.)

#include <map>

#include "engine/schedules/interpreter.hpp"
#include "five_stage.hpp"

namespace shard::meshes {

template <class K>
class FiveWorker : public Interpreter {
 public:
  /// With at most so many micro-batches.
  FiveWorker(const FiveStage<K>& stage, FiveBatch batch, Index micro_batches)
      : stage_(stage), batch_(std::move(batch)), micro_batches_(batch_.micro_batches(micro_batches)) {}

  /// Carries out this device's part of the schedule. At the last stage, `loss_gradient` is called; if there
  /// is none, the worker keeps the losses.
  void run(const Schedule& schedule, const LossGradient& loss_gradient) {
    schedule_ = &schedule;
    loss_gradient_ = loss_gradient;
    interpret(schedule, along().device_id(), *this);
  }

  const FiveBatch& batch() const { return batch_; }
  Index micro_batches() const { return micro_batches_; }
  /// The losses of the only micro-batch, (t, 1), at the last stage.
  Tensor take_losses() { return take({Flow::activation, 0, along().num_devices()}).local(); }
  /// Gives their gradient, which goes back through the stages.
  void give_gradient_of_losses(Tensor dlosses) {
    put({Flow::gradient, 0, along().num_devices() - 1}, of_piece(std::move(dlosses), 0));
  }
  /// The gradients of this stage's weights, summed over the micro-batches. They are still to be reduced.
  FiveAddends<K>& addends() { return addends_; }

 protected:
  void forward(Index m, int s) override {
    const FivePiece piece = batch_.piece(m, micro_batches_);
    FiveKept<K> kept;
    Activation<R> x = stage_.forward(s == 0 ? Activation<R>() : take({Flow::activation, m, s}), piece, kept);
    if (!InferenceMode::is_on()) kept_.emplace(m, std::move(kept));
    if (!stage_.is_last() || !loss_gradient_) return put({Flow::activation, m, s + 1}, std::move(x));
    put({Flow::gradient, m, s}, of_piece(batch_.gradient_of(x.local(), piece.tokens, loss_gradient_), m));
  }
  void backward(Index m, int s) override {
    Activation<R> d = stage_.backward(take({Flow::gradient, m, s}), batch_.piece(m, micro_batches_),
                                      std::move(kept_.extract(m).mapped()), addends_);
    if (s > 0) put({Flow::gradient, m, s - 1}, std::move(d));  // (t, D)
  }

  void post_send(const Message& m) override {
    sends_.emplace(m, along().post_send(schedule_->receiver(m), take(m).local()));
  }
  void post_receive(const Message& m) override {
    const Index rows = batch_.piece(m.micro_batch, micro_batches_).tokens.rows();
    receives_.emplace(m, along().post_receive(schedule_->sender(m), {rows, stage_.here.m.model_dim}));
  }
  void wait_sent(const Message& m) override { sends_.extract(m).mapped().wait(); }
  void wait_received(const Message& m) override {
    put(m, of_piece(receives_.extract(m).mapped().get(), m.micro_batch));
  }

 private:
  Communicator& along() const { return stage_.here.template along<pipeline>(); }
  /// Rows of a micro-batch, (t, D) or (t, 1).
  Activation<R> of_piece(Tensor rows, Index m) const {
    const Shape global = {batch_.piece(m, micro_batches_).all_rows, rows.extent(1)};
    return Activation<R>::uneven(stage_.here.mesh(), std::move(rows), global);
  }
  void put(const Message& m, Activation<R> t) { values_.insert_or_assign(m, std::move(t)); }
  Activation<R> take(const Message& m) { return std::move(values_.extract(m).mapped()); }

  const FiveStage<K>& stage_;
  FiveBatch batch_;
  Index micro_batches_;
  const Schedule* schedule_ = nullptr;
  LossGradient loss_gradient_;
  FiveAddends<K> addends_;
  std::map<Message, Activation<R>> values_;
  std::map<Index, FiveKept<K>> kept_;  // of each micro-batch
  std::map<Message, Future<>> sends_;
  std::map<Message, Future<Tensor>> receives_;
};

}  // namespace shard::meshes
