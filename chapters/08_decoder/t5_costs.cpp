#include "t5_costs.hpp"

#include <memory>

#include "engine/workloads/block_traces.hpp"

namespace shard::decoders {

namespace {

/// What a part of a block returns is an addend.
class T5TensorBlockTrace : public T5BlockTrace {
 public:
  using T5BlockTrace::T5BlockTrace;

 protected:
  void reduce(Index elements) override { t.all_reduce(elements); }
};

/// A step of an engine that has v rows of the vocabulary, all blocks, and all rows of each stack.
class T5StepTrace {
 public:
  T5StepTrace(const T5Setting& s, const T5Sizes& sizes, Index vocabulary, bool is_divided)
      : m_(s.m), z_(sizes), v_(vocabulary), t_(s), is_divided_(is_divided) {
    t_.hold(parameters());
    t_.hold(s.input(s.batch));
  }

  Costs costs(const T5Setting& s) {
    read(Side::encoder);
    read(Side::decoder);
    const Index T = z_.rows(Side::decoder);
    t_.hold_product(T, z_.D, v_);
    if (is_divided_)
      divided_cross_entropy(t_, T);
    else
      traces::cross_entropy(t_, T);
    t_.release(s.input(s.batch));
    t_.hold(T);     // dL/dlosses
    t_.release(T);  // losses
    traces::cross_entropy_backward(t_, T);
    t_.hold_product(v_, T, z_.D);  // of the head
    t_.hold_product(T, v_, z_.D);
    reduce(T * z_.D);
    t_.release(T * v_);
    read_backward(Side::decoder);
    reduce(z_.rows(Side::encoder) * z_.D);
    read_backward(Side::encoder);
    return t_.costs(parameters());
  }

 private:
  /// Elements of what this device owns.
  Index parameters() const {
    Index elements = (m_.is_tied ? 1 : 2) * v_ * z_.D;
    for (Side side : {Side::encoder, Side::decoder})
      elements += z_.table_of_bias() + m_.blocks(side) * z_.block_parameters(side) + z_.D;
    return elements;
  }
  void reduce(Index elements) {
    if (is_divided_) t_.all_reduce(elements);
  }
  std::vector<std::unique_ptr<T5BlockTrace>>& blocks(Side side) {
    return side == Side::encoder ? encoder_ : decoder_;
  }

  void read(Side side) {
    const Index x = z_.rows(side) * z_.D;
    t_.hold(z_.bias(side));
    t_.hold(x);
    reduce(x);
    for (Index b = 0; b < m_.blocks(side); ++b) {
      if (is_divided_)
        blocks(side).push_back(std::make_unique<T5TensorBlockTrace>(t_, z_, side));
      else
        blocks(side).push_back(std::make_unique<T5BlockTrace>(t_, z_, side));
      blocks(side).back()->forward();
    }
    traces::rms_norm(t_, z_.rows(side), z_.D);
    t_.release(x);
  }
  void read_backward(Side side) {
    traces::rms_norm_backward(t_, z_.rows(side), z_.D);
    t_.hold(z_.bias(side));  // its gradient
    bool is_first = true;
    for (auto block = blocks(side).rbegin(); block != blocks(side).rend(); ++block) {
      (*block)->backward(is_first);
      is_first = false;
    }
    t_.hold(z_.table_of_bias());
    t_.hold(v_ * z_.D);  // of the embedding
    t_.release(z_.bias(side) + z_.rows(side) * z_.D);
  }

  T5Model m_;
  T5Sizes z_;
  Index v_;  // rows of the vocabulary here
  Trace t_;
  bool is_divided_;
  std::vector<std::unique_ptr<T5BlockTrace>> encoder_, decoder_;
};

}  // namespace

Costs t5_single_costs(const T5Setting& s) {
  const T5Sizes sizes(s, s.batch, s.m.heads, s.m.hidden_dim);
  return T5StepTrace(s, sizes, s.m.vocabulary, false).costs(s);
}

Costs t5_tensor_costs(const T5Setting& s) {
  const T5Sizes sizes(s, s.batch, s.mine(s.m.heads), s.mine(s.m.hidden_dim));
  return T5StepTrace(s, sizes, s.mine(s.m.vocabulary), true).costs(s);
}

}  // namespace shard::decoders
