#pragma once

/// What interprets a schedule on one device: each action is a few lines of arithmetic, or a message.

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/sharded_engine.hpp"
#include "engine/workloads/mlp_model.hpp"
#include "schedule.hpp"

namespace shard::pipeline {

/// What this device knows of the pipeline: which layers make a stage, and their weights.
struct Stages {
  std::vector<Range> layers;   ///< of each stage
  std::vector<Owned> weights;  ///< of each layer, (D, F), (F, D), ...; those of other devices are absent

  int count() const { return static_cast<int>(layers.size()); }
  Range of(int stage) const { return layers[static_cast<std::size_t>(stage)]; }
  Owned& weight(Index layer) { return weights[static_cast<std::size_t>(layer)]; }
  /// Width of what goes into a stage; of stage count(): of the output.
  Index width(int stage) const {
    if (stage < count()) return weights[static_cast<std::size_t>(of(stage).begin)].global_shape()[0];
    return weights.back().global_shape()[1];
  }
};

/// A micro-batch through a stage. Each layer's input goes to `inputs`, if anybody wants them.
inline Owned through_stage(Stages& stages, int stage, Owned a, std::vector<Owned>* inputs) {
  for (Index l = stages.of(stage).begin; l < stages.of(stage).end; ++l) {
    if (relu_before(l)) a = relu(std::move(a));  // (b, F)
    Owned out = matmul(a, stages.weight(l));     // (b, F) or (b, D)    O·O = O
    if (inputs != nullptr) inputs->push_back(std::move(a));
    a = std::move(out);
  }
  return a;
}

/// One step: a batch, cut into micro-batches, on its way through the stages of this device.
class Worker {
 public:
  /// `input`: the rows on the device of stage 0, nothing elsewhere; `rows`: how many they are.
  Worker(Stages& stages, Tensor input, Index rows, Index micro_batches, bool wants_input_grad)
      : stages_(stages),
        input_(std::move(input)),
        rows_(rows),
        micro_batches_(micro_batches),
        wants_input_grad_(wants_input_grad),
        dw_(stages.weights.size()) {}

  /// Does what the schedule says for this device. `loss_gradient` is asked where the last stage is; without
  /// one the outputs stay here.
  void run(const Schedule& schedule, const LossGradient& loss_gradient) {
    for (const Action& a : schedule.actions[static_cast<std::size_t>(me())]) {
      if (a.kind == Action::Kind::post_receive)
        receives_.emplace(a.message(),
                          world().post_receive(schedule.sender(a.message()), shape_of(a.message())));
      else if (a.kind == Action::Kind::post_send)
        sends_.emplace(a.message(),
                       world().post_send(schedule.receiver(a.message()), take(a.message()).local()));
      else if (a.kind == Action::Kind::wait)
        wait_for(a.message());
      else
        work_on(a, loss_gradient);
    }
  }

  Index rows() const { return rows_; }
  /// The output of the only micro-batch, on the device of the last stage.
  Tensor take_output() { return take({Flow::activation, 0, stages_.count()}).local(); }
  /// Its gradient, to go back through the stages.
  void give_output_grad(Tensor dout) { put({Flow::gradient, 0, stages_.count() - 1}, mine(std::move(dout))); }
  /// My addends of the weights' gradients have become sums; dL/dx is whole.
  Owned take_weight_grad(Index layer) { return std::move(dw_[static_cast<std::size_t>(layer)]); }
  Tensor take_input_grad() { return std::move(dx_); }

 private:
  using Piece = std::pair<Index, int>;  // micro-batch and stage
  /// A layer's gradient of weights that is still to be computed: aᵀ d.
  struct Half {
    Index layer;
    Owned a, d;
  };

  void work_on(const Action& action, const LossGradient& loss_gradient) {
    const auto& [kind, m, s, flow] = action;
    if (kind == Action::Kind::forward) {
      forward(m, s);
      if (s == stages_.count() - 1 && loss_gradient) {
        Owned out = take({Flow::activation, m, s + 1});
        put({Flow::gradient, m, s}, mine(loss_gradient(out.local(), rows_of(m).begin)));
      }
    } else if (kind == Action::Kind::backward) {
      backward(m, s);
    } else if (kind == Action::Kind::backward_input) {
      backward_input(m, s);
    } else {
      backward_weights(m, s);
    }
  }

  void forward(Index m, int s) {
    Owned a = s == 0 ? mine(slice(input_, 0, rows_of(m).begin, rows_of(m).end))  // (b, D)
                     : take({Flow::activation, m, s});                           // (b, D) or (b, F)
    std::vector<Owned>* inputs = InferenceMode::is_on() ? nullptr : &kept_[{m, s}];
    a = through_stage(stages_, s, std::move(a), inputs);
    put({Flow::activation, m, s + 1}, std::move(a));
  }

  void backward(Index m, int s) {
    Owned d = take({Flow::gradient, m, s});  // like the stage's output
    std::vector<Owned> inputs = std::move(kept_.extract({m, s}).mapped());
    for (Index l = stages_.of(s).end; l-- > stages_.of(s).begin; inputs.pop_back()) {
      const Owned& a = inputs.back();
      add_to_weight_grad(l, a, d);
      d = d_input(l, d, a);
    }
    pass_back(m, s, std::move(d));
  }

  /// The half that the stage before waits for; what the other half needs is kept.
  void backward_input(Index m, int s) {
    Owned d = take({Flow::gradient, m, s});  // like the stage's output
    std::vector<Owned> inputs = std::move(kept_.extract({m, s}).mapped());
    std::deque<Half>& halves = halves_[{m, s}];
    for (Index l = stages_.of(s).end; l-- > stages_.of(s).begin; inputs.pop_back()) {
      Owned before = d_input(l, d, inputs.back());
      halves.push_back({l, std::move(inputs.back()), std::move(d)});
      d = std::move(before);
    }
    pass_back(m, s, std::move(d));
  }

  void backward_weights(Index m, int s) {
    std::deque<Half>& halves = halves_.at({m, s});
    for (; !halves.empty(); halves.pop_front())
      add_to_weight_grad(halves.front().layer, halves.front().a, halves.front().d);
    halves_.erase({m, s});
  }

  /// dL/da of a layer's input, before the ReLU that made it; nothing where nobody wants it.
  Owned d_input(Index l, const Owned& d, const Owned& a) {
    if (l == 0 && !wants_input_grad_) return {};
    Owned da = matmul(d, transposed(stages_.weight(l)));  // like a    O·O = O
    return relu_before(l) ? relu_backward(std::move(da), a) : std::move(da);
  }

  void add_to_weight_grad(Index l, const Owned& a, const Owned& d) {
    Owned& dw = dw_[static_cast<std::size_t>(l)];
    Owned addend = matmul(transposed(a), d);  // like the weights    O·O = O
    dw = dw.is_empty() ? std::move(addend) : std::move(dw) + addend;
  }

  void pass_back(Index m, int s, Owned d) {
    if (s > 0) return put({Flow::gradient, m, s - 1}, std::move(d));
    if (!wants_input_grad_) return;
    if (dx_.size() == 0) dx_ = Tensor::uninitialized(input_.shape());  // (B, D)
    assign(Rows(dx_, rows_of(m).begin, rows_of(m).end), d.local());
  }

  void wait_for(const Message& m) {
    if (auto sent = sends_.extract(m))
      sent.mapped().wait();
    else
      put(m, mine(receives_.extract(m).mapped().get()));
  }

  static int me() { return world().device_id(); }
  Range rows_of(Index m) const { return part(rows_, static_cast<int>(micro_batches_), static_cast<int>(m)); }
  /// An activation goes into its stage; a gradient is one of what goes into the next.
  Shape shape_of(const Message& m) const {
    return {rows_of(m.micro_batch).size(), stages_.width(m.flow == Flow::activation ? m.stage : m.stage + 1)};
  }
  static Owned mine(Tensor t) {
    Shape shape = t.shape();
    return {std::move(t), std::move(shape), me()};
  }
  void put(const Message& m, Owned t) { values_.insert_or_assign(m, std::move(t)); }
  Owned take(const Message& m) { return std::move(values_.extract(m).mapped()); }

  Stages& stages_;
  Tensor input_;  // (B, D) where stage 0 is
  Index rows_;
  Index micro_batches_;
  bool wants_input_grad_;
  std::vector<Owned> dw_;  // of each layer; those of other devices stay empty
  Tensor dx_;              // (B, D) where stage 0 is
  std::map<Message, Owned> values_;
  std::map<Piece, std::vector<Owned>> kept_;  // inputs of a stage's layers
  std::map<Piece, std::deque<Half>> halves_;
  std::map<Message, Future<>> sends_;
  std::map<Message, Future<Tensor>> receives_;
};

}  // namespace shard::pipeline
