#pragma once

/// The worker that carries out a pipeline's schedule on one device: it takes the micro-batches of a batch
/// through its stage.

#include <map>

#include "engine/schedules/interpreter.hpp"
#include "engine/sharded_engine.hpp"
#include "layers_stage.hpp"

namespace shard::decoders {

/// ## The worker
class StageWorker : public Interpreter {
 public:
  /// `batch`: all sequences. The first stage needs their ids, and the last one their labels.
  StageWorker(Communicator& group, const Stage& stage, Tokens batch, Index micro_batches)
      : group_(group), stage_(stage), batch_(std::move(batch)), micro_batches_(micro_batches) {}

  /// Carries out this device's part of the schedule. The last device calls `loss_gradient`; if there is none,
  /// it keeps the losses.
  void run(const Schedule& schedule, const LossGradient& loss_gradient) {
    schedule_ = &schedule;
    loss_gradient_ = loss_gradient;
    interpret(schedule, group_.device_id(), *this);
  }

  /// Tokens of the batch.
  Index rows() const { return batch_.rows(); }
  /// The losses of the only micro-batch, on the last device.
  Tensor take_output() { return take({Flow::activation, 0, group_.num_devices()}).local(); }
  /// Gives their gradient, which goes back through the stages.
  void give_output_grad(Tensor dlosses) {
    put({Flow::gradient, 0, group_.num_devices() - 1}, Owned::mine(group_, std::move(dlosses)));
  }
  /// The gradients of what this device owns, summed over the micro-batches.
  OwnedWeights& gradients() { return dw_; }

 protected:
  void forward(Index m, int s) override {
    StageKept kept{.tokens = some_sequences(batch_, sequences_of(m))};
    Owned x = stage_.forward(stage_.is_first() ? Owned() : take({Flow::activation, m, s}), kept);
    if (!InferenceMode::is_on()) kept_.emplace(m, std::move(kept));
    if (stage_.is_last() && loss_gradient_) {
      const Index first_row = sequences_of(m).begin * batch_.length;
      put({Flow::gradient, m, s}, Owned::mine(group_, loss_gradient_(x.local(), first_row)));  // (t, 1)
    } else {
      put({Flow::activation, m, s + 1}, std::move(x));  // (t, D) or (t, 1)
    }
  }
  void backward(Index m, int s) override {
    Owned d = stage_.backward(take({Flow::gradient, m, s}), std::move(kept_.extract(m).mapped()), dw_);
    if (!stage_.is_first()) put({Flow::gradient, m, s - 1}, std::move(d));  // (t, D)
  }

  void post_send(const Message& m) override {
    sends_.emplace(m, group_.post_send(schedule_->receiver(m), take(m).local()));
  }
  void post_receive(const Message& m) override {
    const Shape shape = {sequences_of(m.micro_batch).size() * batch_.length, stage_.m.model_dim};  // (t, D)
    receives_.emplace(m, group_.post_receive(schedule_->sender(m), shape));
  }
  void wait_sent(const Message& m) override { sends_.extract(m).mapped().wait(); }
  void wait_received(const Message& m) override {
    put(m, Owned::mine(group_, receives_.extract(m).mapped().get()));
  }

 private:
  Range sequences_of(Index m) const {
    return part(batch_.sequences, static_cast<int>(micro_batches_), static_cast<int>(m));
  }
  void put(const Message& m, Owned t) { values_.insert_or_assign(m, std::move(t)); }
  Owned take(const Message& m) { return std::move(values_.extract(m).mapped()); }

  Communicator& group_;
  const Stage& stage_;
  Tokens batch_;
  Index micro_batches_;
  const Schedule* schedule_ = nullptr;
  LossGradient loss_gradient_;
  OwnedWeights dw_;
  std::map<Message, Owned> values_;
  std::map<Index, StageKept> kept_;  // of each micro-batch
  std::map<Message, Future<>> sends_;
  std::map<Message, Future<Tensor>> receives_;
};

}  // namespace shard::decoders
