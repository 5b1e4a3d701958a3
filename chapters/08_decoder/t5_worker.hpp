#pragma once

/// The worker that carries out a pipeline's schedule on one device of an encoder-decoder. A message of the
/// schedule is one tensor or two: see T5Stream.

#include <map>

#include "engine/schedules/interpreter.hpp"
#include "engine/sharded_engine.hpp"
#include "pipelined.hpp"
#include "t5_stage.hpp"

namespace shard::decoders {

class T5StageWorker : public Interpreter {
 public:
  /// `batch`: all sequences.
  T5StageWorker(Communicator& group, const T5Stage& stage, SourceAndTarget batch, Index micro_batches)
      : group_(group), stage_(stage), batch_(std::move(batch)), micro_batches_(micro_batches) {}

  /// Carries out this device's part of the schedule. The last device calls `loss_gradient`; if there is none,
  /// it keeps the losses.
  void run(const Schedule& schedule, const LossGradient& loss_gradient) {
    schedule_ = &schedule;
    loss_gradient_ = loss_gradient;
    interpret(schedule, group_.device_id(), *this);
  }

  /// Tokens of the targets.
  Index rows() const { return batch_.target.rows(); }
  /// The losses of the only micro-batch, on the last device.
  Tensor take_output() { return take({Flow::activation, 0, group_.num_devices()}).decoder.local(); }
  /// Gives their gradient, which goes back through the stages.
  void give_output_grad(Tensor dlosses) {
    put({Flow::gradient, 0, group_.num_devices() - 1}, {Owned(), Owned::mine(group_, std::move(dlosses))});
  }
  /// The gradients of what this device reads, summed over the micro-batches.
  T5OwnedWeights& gradients() { return dw_; }

 protected:
  void forward(Index m, int s) override {
    T5StageKept kept{.encoder = {some_sequences(batch_.source, sequences_of(m))},
                     .decoder = {some_sequences(batch_.target, sequences_of(m))}};
    T5Stream x = stage_.forward(s == 0 ? T5Stream{nothing(), {}} : take({Flow::activation, m, s}), kept);
    if (!InferenceMode::is_on()) kept_.emplace(m, std::move(kept));
    if (stage_.is_last() && loss_gradient_) {
      const Index first_row = sequences_of(m).begin * batch_.target.length;
      const Tensor losses = std::move(x.decoder).local();  // (t, 1)
      put({Flow::gradient, m, s}, {Owned(), Owned::mine(group_, loss_gradient_(losses, first_row))});
    } else {
      put({Flow::activation, m, s + 1}, std::move(x));
    }
  }
  void backward(Index m, int s) override {
    T5Stream d = stage_.backward(take({Flow::gradient, m, s}), std::move(kept_.extract(m).mapped()), dw_);
    if (s > 0) put({Flow::gradient, m, s - 1}, std::move(d));
  }

  void post_send(const Message& m) override {
    T5Stream x = take(m);
    std::vector<Future<>>& sends = sends_[m];
    sends.push_back(group_.post_send(schedule_->receiver(m), std::move(x.encoder).local()));
    if (has_decoder(m))
      sends.push_back(group_.post_send(schedule_->receiver(m), std::move(x.decoder).local()));
  }
  void post_receive(const Message& m) override {
    const Index sequences = sequences_of(m.micro_batch).size(), D = stage_.m.model_dim;
    std::vector<Future<Tensor>>& receives = receives_[m];
    auto post = [&](const Tokens& all) {
      receives.push_back(group_.post_receive(schedule_->sender(m), {sequences * all.length, D}));
    };
    post(batch_.source);                      // (t_e, D)
    if (has_decoder(m)) post(batch_.target);  // (t, D)
  }
  void wait_sent(const Message& m) override {
    auto sends = std::move(sends_.extract(m).mapped());
    for (Future<>& sent : sends) sent.wait();
  }
  void wait_received(const Message& m) override {
    auto receives = std::move(receives_.extract(m).mapped());
    T5Stream x{.encoder = Owned::mine(group_, receives[0].get()), .decoder = {}};
    if (has_decoder(m)) x.decoder = Owned::mine(group_, receives[1].get());
    put(m, std::move(x));
  }

 private:
  /// No rows: what the encoder returns in a pass that goes on (begins).
  Owned nothing() const { return Owned::mine(group_, Tensor({0, stage_.m.model_dim})); }
  /// Whether the message also has the decoder's stream, or its gradient.
  bool has_decoder(const Message& m) const {
    return stage_.split.is_within_decoder(std::max(m.stage, m.from_stage()));
  }
  Range sequences_of(Index m) const {
    return part(batch_.source.sequences, static_cast<int>(micro_batches_), static_cast<int>(m));
  }
  void put(const Message& m, T5Stream x) { values_.insert_or_assign(m, std::move(x)); }
  T5Stream take(const Message& m) { return std::move(values_.extract(m).mapped()); }

  Communicator& group_;
  const T5Stage& stage_;
  SourceAndTarget batch_;
  Index micro_batches_;
  const Schedule* schedule_ = nullptr;
  LossGradient loss_gradient_;
  T5OwnedWeights dw_;
  std::map<Message, T5Stream> values_;
  std::map<Index, T5StageKept> kept_;  // of each micro-batch
  std::map<Message, std::vector<Future<>>> sends_;
  std::map<Message, std::vector<Future<Tensor>>> receives_;
};

}  // namespace shard::decoders
