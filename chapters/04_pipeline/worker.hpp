#pragma once

/// The worker carries out a schedule on one device. Each kind of action is a few lines of arithmetic, or a
/// message.

#include <map>
#include <utility>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/schedules/interpreter.hpp"
#include "engine/schedules/timeline.hpp"
#include "stages.hpp"

namespace shard::pipeline {

/// One step of training on this device: takes the micro-batches of a batch through the device's stages.
class Worker : public Interpreter {
 public:
  /// `input` has the batch's rows on the device of stage 0, and is empty elsewhere. `rows` is their number.
  Worker(Communicator& group, Stages& stages, Tensor input, Index rows, Index micro_batches,
         bool wants_input_grad)
      : group_(group),
        stages_(stages),
        input_(std::move(input)),
        rows_(rows),
        micro_batches_(micro_batches),
        wants_input_grad_(wants_input_grad),
        dw_(stages.weights.size()) {}

  /// Carries out this device's part of the schedule. The device of the last stage calls `loss_gradient`; if
  /// there is none, it keeps the outputs.
  void run(const Schedule& schedule, const LossGradient& loss_gradient) {
    loss_gradient_ = loss_gradient;
    interpret(schedule, group_.device_id(), *this);
  }

  Index rows() const { return rows_; }
  /// The output of the only micro-batch, on the device of the last stage.
  Tensor take_output() { return take({Flow::activation, 0, stages_.count()}).local(); }
  /// Gives the gradient of that output, which goes back through the stages.
  void give_output_grad(Tensor dout) {
    put({Flow::gradient, 0, stages_.count() - 1}, Owned::mine(group_, std::move(dout)));
  }
  /// A layer's gradient, after the worker has added up the addends of all micro-batches.
  Owned take_weight_grad(Index layer) { return std::move(weight_grad(layer)); }
  Tensor take_input_grad() { return std::move(dx_); }
  /// Operations of each forward on this device, for the clock.
  const ForwardWork& work() const { return work_; }

 protected:
  /// The last stage also computes the loss, and stores dL/dout instead of its output.
  void forward(Index m, int s) override {
    Owned a = s == 0 ? Owned::mine(group_, slice(input_, 0, rows_of(m).begin, rows_of(m).end))  // (b, D)
                     : take({Flow::activation, m, s});  // (b, D) or (b, F)
    std::vector<Owned>* inputs = InferenceMode::is_on() ? nullptr : &kept_[{m, s}];
    const Index before = ledger().flops();
    Owned out = through_stage(stages_, s, std::move(a), inputs);
    work_[{m, s}] = ledger().flops() - before;
    if (s == stages_.count() - 1 && loss_gradient_)
      put({Flow::gradient, m, s}, Owned::mine(group_, loss_gradient_(out.local(), rows_of(m).begin)));
    else
      put({Flow::activation, m, s + 1}, std::move(out));
  }

  void backward(Index m, int s) override {
    Owned d = take({Flow::gradient, m, s});  // like the stage's output
    std::vector<Owned> inputs = taken(kept_, {m, s});
    for (Index l = stages_.of(s).end; l-- > stages_.of(s).begin; inputs.pop_back()) {
      const Owned& a = inputs.back();
      accumulate(weight_grad(l), matmul(transposed(a), d));  // like the weights    O·O = O
      d = d_input(l, d, a);
    }
    pass_back(m, s, std::move(d));
  }

  /// Computes the half that the stage before waits for, and keeps the data that the other half needs.
  void backward_input(Index m, int s) override {
    Owned d = take({Flow::gradient, m, s});  // like the stage's output
    std::vector<Owned> inputs = taken(kept_, {m, s});
    std::vector<Half>& halves = halves_[{m, s}];
    for (Index l = stages_.of(s).end; l-- > stages_.of(s).begin; inputs.pop_back()) {
      Owned before = d_input(l, d, inputs.back());
      halves.push_back({l, std::move(inputs.back()), std::move(d)});
      d = std::move(before);
    }
    pass_back(m, s, std::move(d));
  }

  void backward_weights(Index m, int s) override {
    std::vector<Half> halves = taken(halves_, {m, s});
    for (auto& [l, a, d] : halves) {
      accumulate(weight_grad(l), matmul(transposed(a), d));  // like the weights    O·O = O
      a = Owned();
      d = Owned();
    }
  }

  void post_send(const Message& m) override {
    sends_.emplace(m, group_.post_send(stages_.device_of(m.stage), take(m).local()));
  }
  void post_receive(const Message& m) override {
    receives_.emplace(m, group_.post_receive(stages_.device_of(m.from_stage()), shape_of(m)));
  }
  void wait_sent(const Message& m) override { taken(sends_, m).wait(); }
  void wait_received(const Message& m) override { put(m, Owned::mine(group_, taken(receives_, m).get())); }

 private:
  using Piece = std::pair<Index, int>;  // micro-batch and stage
  /// The operands of a layer's weight gradient that is still to be computed, aᵀ d.
  struct Half {
    Index layer;
    Owned a, d;
  };

  /// The gradient of a layer's input, taken back through the ReLU that made this input. Empty if not needed.
  Owned d_input(Index l, const Owned& d, const Owned& a) {
    if (l == 0 && !wants_input_grad_) return {};
    Owned da = matmul(d, transposed(stages_.weight(l)));  // like a    O·O = O
    return relu_before(l) ? relu_backward(std::move(da), a) : std::move(da);
  }

  void pass_back(Index m, int s, Owned d) {
    if (s > 0) return put({Flow::gradient, m, s - 1}, std::move(d));
    if (!wants_input_grad_) return;
    if (dx_.size() == 0) dx_ = Tensor::uninitialized(input_.shape());  // (B, D)
    assign(Rows(dx_, rows_of(m).begin, rows_of(m).end), d.local());
  }

  Range rows_of(Index m) const { return part(rows_, static_cast<int>(micro_batches_), static_cast<int>(m)); }
  /// An activation has the width of its stage's input; a gradient has the width of the next stage's input.
  Shape shape_of(const Message& m) const {
    return {rows_of(m.micro_batch).size(), stages_.width(m.flow == Flow::activation ? m.stage : m.stage + 1)};
  }
  Owned& weight_grad(Index layer) { return dw_[static_cast<std::size_t>(layer)]; }
  void put(const Message& m, Owned t) { values_.insert_or_assign(m, std::move(t)); }
  Owned take(const Message& m) { return taken(values_, m); }

  Communicator& group_;
  Stages& stages_;
  Tensor input_;  // (B, D) where stage 0 is
  Index rows_;
  Index micro_batches_;
  bool wants_input_grad_;
  LossGradient loss_gradient_;
  std::vector<Owned> dw_;  // of each layer; those of other devices stay empty
  Tensor dx_;              // (B, D) where stage 0 is
  ForwardWork work_;
  std::map<Message, Owned> values_;
  std::map<Piece, std::vector<Owned>> kept_;  // inputs of a stage's layers
  std::map<Piece, std::vector<Half>> halves_;
  std::map<Message, Future<>> sends_;
  std::map<Message, Future<Tensor>> receives_;
};

}  // namespace shard::pipeline
