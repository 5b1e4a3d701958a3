#pragma once

/// What a device has in tensor parallelism, in numbers, and what a block of it does, as a trace.

#include "engine/workloads/block_traces.hpp"
#include "tensor_weights.hpp"

namespace shard::decoders {

/// What a device has: h query heads and g key-value heads, f hidden units, v of the vocabulary, and t of the
/// T rows, where these are divided.
struct TensorSizes {
  Index T, D, V, h, g, f, v;
  bool divides_key_heads;
  Range tokens;             ///< those T, of the batch
  std::vector<Index> rows;  ///< elements of each device's rows of the residual stream

  explicit TensorSizes(const DecoderSetting& s) : TensorSizes(s, {0, s.tokens()}) {}
  /// Where these devices have only some tokens of the batch: `s` is a setting of those.
  TensorSizes(const DecoderSetting& s, Range of_batch)
      : T(of_batch.size()),
        D(s.m.model_dim),
        V(s.m.vocabulary),
        f(s.mine(s.m.hidden_dim)),
        v(s.mine(V)),
        tokens(of_batch) {
    const TensorHeads heads(s.m, s.devices);
    h = heads.queries(s.device).size(), g = heads.keys(s.device).size();
    divides_key_heads = heads.divides_key_heads();
    rows = slices(T, D, s.devices);
  }

  PartSizes block(const DecoderSetting& s, Index b) const {
    return {s.m, s.batch, s.length, s.choices(b, tokens), h, g, f};
  }
  /// Elements of what this device owns. Every device has norms and routers.
  Index parameters(const DecoderModel& m) const {
    const Index attention = 2 * D * (h + g) * m.head_dim;
    const Index feed_forward = std::max<Index>(m.experts, 1) * 3 * D * f + D * m.experts;
    return m.num_blocks * (2 * D + attention + feed_forward) + D + (m.is_tied ? 1 : 2) * v * D;
  }
};

/// Four all-reduces of the residual stream or its gradient.
class TensorBlockTrace : public BlockTrace {
 public:
  TensorBlockTrace(Trace& trace, const PartSizes& sizes, bool divides_key_heads)
      : BlockTrace(trace, sizes), divides_key_heads_(divides_key_heads) {}

 protected:
  void attend() override {
    BlockTrace::attend();
    t.all_reduce(z.T * z.D);
  }
  void think() override {
    BlockTrace::think();
    t.all_reduce(z.T * z.D);
  }
  void think_backward() override {
    if (!z.is_mixture()) {
      traces::feed_forward_backward(t, z.T, z.D, z.F());
      freed_by_layer(3 * z.T * z.F());
      t.all_reduce(z.T * z.D);
      return norm_backward();
    }
    const Index choices = z.mixture.all_choices(), logits = z.T * z.E();
    traces::mixture_of_experts_backward(t, z.mixture);
    freed_by_layer(choices * (z.D + 3 * z.F()));
    t.all_reduce(choices);  // of the gates
    t.hold(logits);
    t.release(choices);
    t.hold_product(z.D, z.T, z.E());
    t.all_reduce(z.T * z.D);
    t.hold_product(z.T, z.E(), z.D);
    t.release(z.T * z.D + logits);
    norm_backward();
  }
  void attend_backward() override {
    t.hold_product(z.Q(), z.T, z.D);
    t.hold_product(z.T, z.D, z.Q());  // do
    attention_backward();
    for (int i = 0; i < 2 && !divides_key_heads_; ++i) t.all_reduce(z.T * z.K());
    project_backward();
    t.hold_product(z.T, z.K(), z.D);  // dn through keys, and through values
    t.hold_product(z.T, z.K(), z.D);
    t.release(z.T * z.D);
    t.hold_product(z.T, z.Q(), z.D);  // and through queries
    t.all_reduce(z.T * z.D);
    t.release(z.T * z.D);
    norm_backward();
    t.release(z.T * (z.Q() + 2 * z.K()));  // dq, dk, dv
  }

 private:
  bool divides_key_heads_;
};

}  // namespace shard::decoders
