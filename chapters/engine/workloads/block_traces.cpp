#include "engine/workloads/block_traces.hpp"

namespace shard::decoders {

Index DecoderSetting::parameters() const {
  Index elements = 0;
  for (const Parameter& p : m.parameters()) elements += num_elements(p.shape);
  return elements;
}

void BlockTrace::forward() {
  const Index before = t.held();
  attend();
  t.release(residual_);
  think();
  t.release(residual_);
  kept_ = t.held() - before;
}

void BlockTrace::backward() {
  think_backward();
  t.release(residual_);
  attend_backward();
  t.release(residual_);
  t.release(kept_);
}

void BlockTrace::project() {
  t.hold_product(z.T, z.D, z.Q());
  t.hold_product(z.T, z.D, z.K());
  t.hold_product(z.T, z.D, z.K());
}

void BlockTrace::project_backward() {
  for (Index width : {z.Q(), z.K(), z.K()}) {
    t.hold_product(z.D, z.T, width);
    put(z.D * width);
  }
}

void BlockTrace::feed() {
  if (!z.is_mixture()) return traces::feed_forward(t, z.T, z.D, z.F());
  t.hold_product(z.T, z.D, z.E());
  traces::choose_experts(t, z.mixture);
  traces::mixture_of_experts(t, z.mixture);
}

void BlockTrace::attend() {
  traces::rms_norm(t, z.T, z.D);
  project();
  attention();
  t.hold_product(z.T, z.Q(), z.D);
}

void BlockTrace::think() {
  traces::rms_norm(t, z.T, z.D);
  feed();
}

void BlockTrace::norm_backward() {
  traces::rms_norm_backward(t, z.T, z.D);
  put(z.D);
}

void BlockTrace::think_backward() {
  if (!z.is_mixture()) {
    traces::feed_forward_backward(t, z.T, z.D, z.F());
    freed_by_layer(3 * z.T * z.F());
    for (int i = 0; i < 3; ++i) put(z.D * z.F());
    return norm_backward();
  }
  const Index choices = z.mixture.all_choices(), logits = z.T * z.E();
  traces::mixture_of_experts_backward(t, z.mixture);
  freed_by_layer(choices * (z.D + 3 * z.F()));
  for (Index i = 0; i < 3 * z.E(); ++i) put(z.D * z.F());
  t.hold(logits);
  t.release(choices);  // of the gates
  t.hold_product(z.D, z.T, z.E());
  put(z.D * z.E());
  t.hold_product(z.T, z.E(), z.D);
  t.release(z.T * z.D + logits);
  norm_backward();
}

void BlockTrace::attention_backward() {
  traces::attention_backward(t, z.attention);
  t.release(z.T * z.Q());
}

void BlockTrace::attend_backward() {
  t.hold_product(z.Q(), z.T, z.D);  // of the weights behind attention
  put(z.Q() * z.D);
  t.hold_product(z.T, z.D, z.Q());  // do
  attention_backward();
  project_backward();
  t.hold_product(z.T, z.Q(), z.D);  // dn
  for (int i = 0; i < 2; ++i) {
    t.hold_product(z.T, z.K(), z.D);
    t.release(z.T * z.D);
  }
  norm_backward();
  t.release(z.T * (z.Q() + 2 * z.K()));  // dq, dk, dv
}

void loss(Trace& t, Index T, Index D, Index V) {
  traces::rms_norm(t, T, D);
  t.hold_product(T, D, V);
  traces::cross_entropy(t, T);
}

void divided_cross_entropy(Trace& t, Index T) {
  for (int i = 0; i < 3; ++i) {
    t.hold(T);
    t.all_reduce(T);
  }
  t.hold(T);
  t.release(3 * T);
}

void loss_backward(Trace& t, Index T, Index D, Index V) {
  traces::cross_entropy_backward(t, T);
  t.hold_product(V, T, D);  // of the head
  t.hold_product(T, V, D);
  t.release(T * V);
  traces::rms_norm_backward(t, T, D);
}

}  // namespace shard::decoders
