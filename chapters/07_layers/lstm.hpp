#pragma once

/// An LSTM over short sequences. Input and output are (T, B, ·): T tokens of B sequences. Sequences are free.
/// The hidden features, with their gates, cost one all-gather of h a token. A cut of the tokens costs h and c
/// at each border: tokens follow one another, so it saves memory and no time.

#include "lstm_cell.hpp"

namespace shard::layer_cuts {

/// The layer, whole, with its sequences cut (Sharded<1>), or with its tokens cut (Sharded<0>): then a device
/// takes the state of the device before it, and passes its own on. The naive cut begins with zeros.
template <Layout Rows, bool is_naive = false>
class Lstm : public LstmCell {
 public:
  using LstmCell::LstmCell;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { load_gates(c, {0, c.shape("w_i").at(1)}); }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor tokens) override {
    x_ = input<Rows>(std::move(tokens));                          // (T, B, D)
    const Shape shape = {x_.local().extent(1), u_[0].extent(0)};  // (B, H)
    State state = arrived(-1, {Tensor(shape), Tensor(shape)});
    std::vector<Tensor> outputs;
    for (Index t = 0; t < x_.local().extent(0); ++t) {
      state.h = step(token(x_.local(), t), state.h, state.c);
      outputs.push_back(state.h.clone());
    }
    pass_on(+1, state);
    return input<Rows>(of_tokens(std::move(outputs), shape));  // (T, B, H)
  }
  Gradients backward(Tensor dy) override {
    const Shape shape = {x_.local().extent(1), u_[0].extent(0)};  // (B, H)
    GateGradients d = zeros();
    State state = arrived(+1, {Tensor(shape), Tensor(shape)});  // dh and dc
    std::vector<Tensor> dx(steps_.size());
    for (std::size_t t = steps_.size(); t-- > 0;) {
      Tensor dh = add(token(dy, static_cast<Index>(t)), state.h);  // (B, H)
      const std::vector<Tensor> dz = step_backward(steps_[t], std::move(dh), state.c);
      add_step(d, steps_[t], dz);
      dx[t] = through(dz, w_), state.h = through(dz, u_);  // (B, D), (B, H)
    }
    pass_on(-1, state);
    Gradients gradients;
    for (std::size_t gate = 0; gate < w_.size(); ++gate) {
      gradients.put(std::string("w_") + gates[gate], over_rows(x_, std::move(d.w[gate])));
      gradients.put(std::string("u_") + gates[gate], over_rows(x_, std::move(d.u[gate])));
    }
    gradients.put(Gradients::input_grad, as(x_, of_tokens(std::move(dx), {shape[0], w_[0].extent(0)})));
    return gradients;
  }

 private:
  static constexpr bool cuts_tokens = std::same_as<Rows, Sharded<0>> && !is_naive;
  /// h and c, or their gradients: (B, H) each.
  struct State {
    Tensor h, c;
  };
  bool has_neighbour(int direction) const {
    return cuts_tokens && device_id() + direction >= 0 && device_id() + direction < num_devices();
  }
  /// What the device at that side has passed on, or else `first`.
  State arrived(int from, State first) {
    if (!has_neighbour(from)) return first;
    Tensor h = receive(device_id() + from);
    return {std::move(h), receive(device_id() + from)};
  }
  void pass_on(int to, const State& state) {
    if (!has_neighbour(to)) return;
    send(device_id() + to, state.h);
    send(device_id() + to, state.c);
  }

  Rows x_;  // (T, B, D)
};

/// The hidden features are cut, each with its four gates. Every gate reads the whole h of the token before:
/// it is gathered. In the backward pass its gradient is a sum, of which each device needs its columns. The
/// naive cut gathers nothing: the features of a device see only one another.
template <bool is_naive>
class LstmByFeatures : public LstmCell {
 public:
  using LstmCell::LstmCell;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    hidden_ = c.shape("w_i").at(1), mine_ = part(hidden_, num_devices(), device_id());
    load_gates(c, mine_);
  }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    const Index rows = x.extent(1);
    Tensor h({rows, hidden_}), c({rows, mine_.size()});  // (B, H), (B, H/N)
    std::vector<Tensor> outputs;
    for (Index t = 0; t < x.extent(0); ++t) {
      outputs.push_back(step(token(x, t), h, c));  // (B, H/N)
      if (t + 1 < x.extent(0)) h = whole_state(outputs.back().clone());
    }
    Shape global = {x.extent(0), rows, hidden_};
    return Sharded<2>(group(), of_tokens(std::move(outputs), {rows, mine_.size()}), std::move(global),
                      mine_.begin);  // (T, B, H/N)
  }
  Gradients backward(Tensor dy) override {
    GateGradients d = zeros();
    Tensor dh, dc(steps_[0].i.shape());  // (B, H/N)
    std::vector<Tensor> dx(steps_.size());
    for (std::size_t t = steps_.size(); t-- > 0;) {
      Tensor dout = token(dy, static_cast<Index>(t));  // (B, H/N)
      if (t + 1 < steps_.size()) dout = add(std::move(dout), dh);
      const std::vector<Tensor> dz = step_backward(steps_[t], std::move(dout), dc);
      add_step(d, steps_[t], dz);
      dx[t] = through(dz, w_);                    // (B, D)   an addend
      if (t > 0) dh = my_state(through(dz, u_));  // (B, H) → (B, H/N)
    }
    Gradients gradients;
    for (std::size_t gate = 0; gate < w_.size(); ++gate) {
      gradients.put(std::string("w_") + gates[gate], columns(std::move(d.w[gate])));
      gradients.put(std::string("u_") + gates[gate], columns(std::move(d.u[gate])));
    }
    gradients.put(Gradients::input_grad,
                  all_reduce(Partial(group(), of_tokens(std::move(dx), {dy.extent(1), w_[0].extent(0)}))));
    return gradients;
  }

 private:
  /// h of all features, of mine, (B, H).
  Tensor whole_state(Tensor mine) {
    if constexpr (!is_naive) return all_gather(std::move(mine), 1);
    const Tensor before({mine.extent(0), mine_.begin}), after({mine.extent(0), hidden_ - mine_.end});
    const Tensor* const all[] = {&before, &mine, &after};
    return concatenate(all, 1);
  }
  /// My columns of the sum of all devices' addends, (B, H/N).
  Tensor my_state(Tensor addend) {
    if constexpr (!is_naive) return reduce_scatter(std::move(addend), ReduceOp::sum, 1);
    return slice(addend, 1, mine_.begin, mine_.end);
  }
  Sharded<1> columns(Tensor gradient) const {
    const Shape global = {gradient.extent(0), hidden_};
    return Sharded<1>(group(), std::move(gradient), global, mine_.begin);
  }

  Index hidden_ = 0;  // H
  Range mine_;        // my features
};

}  // namespace shard::layer_cuts
