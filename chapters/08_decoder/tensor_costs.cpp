#include "costs.hpp"
#include "tensor_traces.hpp"

namespace shard::decoders {

namespace {

/// Each all-reduce is a reduce-scatter and an all-gather. Norms are of t rows.
class TensorSequenceBlockTrace : public BlockTrace {
 public:
  TensorSequenceBlockTrace(const DecoderSetting& s, Trace& trace, const TensorSizes& sizes, Index b)
      : BlockTrace(trace, sizes.block(s, b), s.mine(sizes.T) * sizes.D),
        rows_(sizes.rows),
        rows_here_(s.mine(sizes.T)),
        divides_key_heads_(sizes.divides_key_heads) {}

 protected:
  void attend() override {
    traces::rms_norm(t, rows_here_, z.D);
    t.all_gather(rows_);
    project();
    attention();
    t.hold_product(z.T, z.Q(), z.D);
    t.release(z.T * z.D);  // the gathered rows
    t.reduce_scatter(rows_);
  }
  void think() override {
    traces::rms_norm(t, rows_here_, z.D);
    t.all_gather(rows_);
    feed();
    t.release(z.T * z.D);
    t.reduce_scatter(rows_);
  }
  void think_backward() override {
    t.all_gather(rows_);  // d
    if (z.is_mixture())
      experts_backward();
    else
      feed_forward_backward();
    rows_norm_backward();
    t.release(z.T * z.D);
  }
  void attend_backward() override {
    t.all_gather(rows_);  // d
    t.hold_product(z.Q(), z.T, z.D);
    t.hold_product(z.T, z.D, z.Q());  // do
    attention_backward();
    for (int i = 0; i < 2 && !divides_key_heads_; ++i) t.all_reduce(z.T * z.K());
    gather_kept();
    project_backward();
    const Index of_keys = through_keys();
    t.hold_product(z.T, z.Q(), z.D);
    t.reduce_scatter(rows_);
    t.release(of_keys);
    rows_norm_backward();
    t.release(z.T * (z.Q() + 2 * z.K()) + z.T * z.D);  // dq, dk, dv and the gathered rows
    t.release(z.T * z.D);
  }

 private:
  /// Rows that a norm gave, which are kept, become all devices' rows.
  void gather_kept() {
    t.all_gather_in_place(rows_);
    freed_by_layer(rows_here_ * z.D);
  }
  void feed_forward_backward() {
    gather_kept();
    traces::feed_forward_backward(t, z.T, z.D, z.F());
    freed_by_layer(3 * z.T * z.F());
    t.release(z.T * z.D);
    t.reduce_scatter(rows_);
  }
  void experts_backward() {
    const Index choices = z.mixture.all_choices(), k = z.mixture.top_k, here = k * rows_here_;
    traces::mixture_of_experts_backward(t, z.mixture);
    freed_by_layer(choices * (z.D + 3 * z.F()));
    std::vector<Index> gates = rows_;
    for (Index& of_device : gates) of_device = of_device / z.D * k;
    t.reduce_scatter(gates);
    t.hold(here);                // the gates of my rows
    t.hold(rows_here_ * z.E());  // dlogits
    t.release(here);             // the gates' gradients
    t.hold_product(z.D, rows_here_, z.E());
    t.all_reduce(z.D * z.E());
    t.reduce_scatter(rows_);
    t.hold_product(rows_here_, z.E(), z.D);
    t.release(rows_here_ * (z.D + z.E()) + here);
  }
  /// dn through keys and values: an addend of all rows, or this device's rows. Returns its elements.
  Index through_keys() {
    const Index rows = divides_key_heads_ ? z.T : rows_here_;
    const Index copy = divides_key_heads_ ? 0 : rows * z.K();  // of these rows of dk, and then of dv
    for (int i = 0; i < 2; ++i) {
      t.hold(copy);
      t.hold_product(rows, z.K(), z.D);
      if (i == 1) t.release(rows * z.D);
      t.release(copy);
    }
    return rows * z.D;
  }
  void rows_norm_backward() {
    traces::rms_norm_backward(t, rows_here_, z.D);
    t.all_reduce(z.D);
  }

  std::vector<Index> rows_;
  Index rows_here_;
  bool divides_key_heads_;
};

}  // namespace

Costs tensor_costs(const DecoderSetting& s) {
  const TensorSizes z(s);
  const Index x = z.T * z.D;
  Trace t(s);
  t.hold(z.parameters(s.m));
  t.hold(2 * z.T);  // the input
  t.hold(x);
  t.all_reduce(x);
  BlockTraces blocks;
  for (Index b = 0; b < s.m.num_blocks; ++b)
    blocks.push_back(std::make_unique<TensorBlockTrace>(t, z.block(s, b), z.divides_key_heads));
  forward(blocks);
  traces::rms_norm(t, z.T, z.D);
  t.hold_product(z.T, z.D, z.v);
  divided_cross_entropy(t, z.T);
  t.release(x + 2 * z.T);
  t.hold(z.T);     // dL/dlosses
  t.release(z.T);  // losses
  traces::cross_entropy_backward(t, z.T);
  t.hold_product(z.v, z.T, z.D);  // of the head
  t.hold_product(z.T, z.v, z.D);
  t.all_reduce(x);
  t.release(z.T * z.v);
  traces::rms_norm_backward(t, z.T, z.D);
  backward(blocks);
  t.hold(z.v * z.D);  // of the embedding
  return t.costs(z.parameters(s.m));
}

Costs tensor_sequence_costs(const DecoderSetting& s) {
  const TensorSizes z(s);
  const Index rows = s.mine(z.T), all = z.T * z.D;
  Trace t(s);
  t.hold(z.parameters(s.m));
  t.hold(2 * z.T);  // the input
  t.hold(all);
  t.reduce_scatter(z.rows);  // x
  BlockTraces blocks;
  for (Index b = 0; b < s.m.num_blocks; ++b)
    blocks.push_back(std::make_unique<TensorSequenceBlockTrace>(s, t, z, b));
  forward(blocks);
  traces::rms_norm(t, rows, z.D);
  t.all_gather(z.rows);
  t.hold_product(z.T, z.D, z.v);
  t.release(all);
  divided_cross_entropy(t, z.T);
  t.release(rows * z.D + 2 * z.T);
  t.hold(z.T);     // dL/dlosses
  t.release(z.T);  // losses
  traces::cross_entropy_backward(t, z.T);
  t.all_gather_in_place(z.rows);
  t.hold_product(z.v, z.T, z.D);  // of the head
  t.release(all);
  t.hold_product(z.T, z.v, z.D);
  t.reduce_scatter(z.rows);
  t.release(z.T * z.v);
  traces::rms_norm_backward(t, rows, z.D);
  t.all_reduce(z.D);
  backward(blocks);
  t.all_gather_in_place(z.rows);
  t.hold(z.v * z.D);  // of the embedding
  return t.costs(z.parameters(s.m));
}

}  // namespace shard::decoders
