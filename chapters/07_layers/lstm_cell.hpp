#pragma once

/// The cell of an LSTM (Hochreiter and Schmidhuber 1997) on one device: for each token, the gates
/// (i, f, g, o) = x W + h U, the cell c = σ(f) c + σ(i) tanh(g), and the output h = σ(o) tanh(c).

#include "engine/device/layer_operations.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// What the backward pass needs of one token.
struct LstmStep {
  Tensor x, h_before, c_before;  // (B, D), (B, H) whole, (B, H/N)
  Tensor i, f, g, o, tanh_c;     // (B, H/N)
};

/// The gates' matrices are (D, H/N) and (H, H/N) each: whole, or some columns.
class LstmCell : public Layer {
 public:
  using Layer::Layer;

 protected:
  static constexpr const char* gates[] = {"i", "f", "g", "o"};

  /// The gate's argument: x W + h U, (B, H/N).
  Tensor argument(const Tensor& x, const Tensor& h, std::size_t gate) const {
    Tensor z = matmul(x, w_[gate]);
    matmul_accumulate(h, u_[gate], z);
    return z;
  }
  /// One token: the new h, (B, H/N). `c` becomes the new cell.
  Tensor step(const Tensor& x, const Tensor& h, Tensor& c) {
    LstmStep s{x.clone(), h.clone(), std::move(c), {}, {}, {}, {}, {}};
    s.i = rounded(sigmoid(argument(x, h, 0))), s.f = rounded(sigmoid(argument(x, h, 1)));
    s.g = rounded(hyperbolic_tangent(argument(x, h, 2))), s.o = rounded(sigmoid(argument(x, h, 3)));
    c = rounded(add(multiply(s.f.clone(), s.c_before), multiply(s.i.clone(), s.g)));
    s.tanh_c = rounded(hyperbolic_tangent(c.clone()));
    Tensor next = rounded(multiply(s.o.clone(), s.tanh_c));
    steps_.push_back(std::move(s));
    return next;
  }
  /// The backward pass of one token. `dh` and `dc` are (B, H/N); returns the gradients of the gates'
  /// arguments.
  std::vector<Tensor> step_backward(const LstmStep& s, Tensor dh, Tensor& dc) const {
    Tensor through_tanh = multiply(dh.clone(), s.o);
    dc = rounded(add(hyperbolic_tangent_backward(std::move(through_tanh), s.tanh_c), dc));
    std::vector<Tensor> dz;
    dz.push_back(rounded(sigmoid_backward(multiply(dc.clone(), s.g), s.i)));
    dz.push_back(rounded(sigmoid_backward(multiply(dc.clone(), s.c_before), s.f)));
    dz.push_back(rounded(hyperbolic_tangent_backward(multiply(dc.clone(), s.i), s.g)));
    dz.push_back(rounded(sigmoid_backward(multiply(std::move(dh), s.tanh_c), s.o)));
    dc = rounded(multiply(std::move(dc), s.f));
    return dz;
  }

  /// Columns [begin, end) of each gate's matrices.
  void load_gates(const Checkpoint& c, Range columns) {
    w_.clear(), u_.clear();
    for (const std::string gate : gates) {
      w_.push_back(c.slice("w_" + gate, 1, columns.begin, columns.end));
      u_.push_back(c.slice("u_" + gate, 1, columns.begin, columns.end));
    }
  }
  /// Token t of (T, B, D), a matrix (B, D).
  static Tensor token(const Tensor& t, Index index) {
    return slice(t, 0, index, index + 1).reshaped({t.extent(1), t.extent(2)});
  }
  /// The reverse: (T, B, D) of T matrices (B, D).
  static Tensor of_tokens(std::vector<Tensor> matrices, const Shape& each) {
    if (matrices.empty()) return Tensor({0, each[0], each[1]});
    std::vector<const Tensor*> all;
    for (Tensor& m : matrices) {
      m = std::move(m).reshaped({1, each[0], each[1]});
      all.push_back(&m);
    }
    return concatenate(all, 0);
  }
  /// The gradients of the gates' matrices, which a step adds to.
  struct GateGradients {
    std::vector<Tensor> w, u;
  };
  GateGradients zeros() const {
    GateGradients d;
    for (std::size_t gate = 0; gate < w_.size(); ++gate)
      d.w.emplace_back(w_[gate].shape()), d.u.emplace_back(u_[gate].shape());
    return d;
  }
  static void add_step(GateGradients& d, const LstmStep& s, const std::vector<Tensor>& dz) {
    for (std::size_t gate = 0; gate < dz.size(); ++gate) {
      matmul_accumulate(transposed(s.x), dz[gate], d.w[gate]);
      matmul_accumulate(transposed(s.h_before), dz[gate], d.u[gate]);
    }
  }
  /// Σ dz mᵀ over the gates: dx of W, dh of U.
  static Tensor through(const std::vector<Tensor>& dz, const std::vector<Tensor>& matrices) {
    Tensor sum = matmul(dz[0], transposed(matrices[0]));
    for (std::size_t gate = 1; gate < dz.size(); ++gate)
      matmul_accumulate(dz[gate], transposed(matrices[gate]), sum);
    return sum;
  }

  std::vector<Tensor> w_, u_;  // of each gate: (D, H/N), (H, H/N)
  std::vector<LstmStep> steps_;
};

}  // namespace shard::layer_cuts
