#include "t5_block_traces.hpp"

namespace shard::decoders {

traces::AttentionSizes T5BlockTrace::attention(Keys keys) const {
  traces::AttentionSizes sizes{z.B, z.H, z.H, z.d, {{0, z.length_of(side_)}}, std::nullopt};
  sizes.is_causal = keys == Keys::own && side_ == Side::decoder;
  sizes.has_bias = keys == Keys::own;
  return sizes;
}
std::vector<Range> T5BlockTrace::runs_of(Keys keys) const {
  return {{0, keys == Keys::own ? z.length_of(side_) : z.source_length}};
}

void T5BlockTrace::forward() {
  const Index before = t.held();
  attend(Keys::own);
  if (side_ == Side::decoder) attend(Keys::of_source);
  think();
  kept_ = t.held() - before;
}

void T5BlockTrace::backward(bool begins_sum) {
  think_backward();
  if (side_ == Side::decoder) attend_backward(Keys::of_source, begins_sum);
  attend_backward(Keys::own, false);
  t.release(kept_);
}

void T5BlockTrace::attend(Keys keys) {
  traces::rms_norm(t, T(), z.D);
  t.hold_product(T(), z.D, z.Q());
  for (int i = 0; i < 2; ++i) t.hold_product(rows_of(keys), z.D, z.Q());
  traces::attention(t, attention(keys), runs_of(keys));
  t.hold_product(T(), z.Q(), z.D);
  reduce(T() * z.D);
  t.release(T() * z.D);  // added to the residual stream
}

void T5BlockTrace::attend_backward(Keys keys, bool begins_sum) {
  const Index T_k = rows_of(keys);
  t.hold_product(z.Q(), T(), z.D);
  put(z.Q() * z.D);
  t.hold_product(T(), z.D, z.Q());  // do
  traces::attend_backward(t, attention(keys), runs_of(keys));
  t.release(T() * z.Q());
  for (Index rows : {T(), T_k, T_k}) {
    t.hold_product(z.D, rows, z.Q());
    put(z.D * z.Q());
  }
  t.hold_product(T(), z.Q(), z.D);  // dn
  for (int i = 0; i < 2; ++i) {
    t.hold_product(T_k, z.Q(), z.D);
    if (i > 0 || !begins_sum) t.release(T_k * z.D);
  }
  reduce(T() * z.D);
  norm_backward();
  t.release((T() + 2 * T_k) * z.Q());  // dq, dk, dv
}

void T5BlockTrace::think() {
  traces::rms_norm(t, T(), z.D);
  traces::feed_forward(t, T(), z.D, z.F, z.has_gate);
  reduce(T() * z.D);
  t.release(T() * z.D);
}

void T5BlockTrace::think_backward() {
  const int matrices = z.has_gate ? 3 : 2;
  traces::feed_forward_backward(t, T(), z.D, z.F, z.has_gate);
  kept_ -= (z.has_gate ? 3 : 1) * T() * z.F;
  reduce(T() * z.D);
  for (int i = 0; i < matrices; ++i) put(z.D * z.F);
  norm_backward();
}

/// The result is added to the gradient of the residual stream.
void T5BlockTrace::norm_backward() {
  traces::rms_norm_backward(t, T(), z.D);
  put(z.D);
  t.release(T() * z.D);
}

}  // namespace shard::decoders
