#include "costs.hpp"

namespace shard::decoders {

Index WholeBlock::kept() const {
  const Index D = m.model_dim, F = m.hidden_dim;
  const Index norms = 2 * (T() + 2 * T() * D);
  const Index heads = 2 * T() * Q() + 2 * T() * K() + 2 * T() * m.heads;
  if (!m.is_mixture()) return norms + heads + 3 * T() * F;
  return norms + heads + T() * m.top_k * (1 + 2 * D + 3 * F);
}

void WholeBlock::forward(Trace& t) const {
  const Index D = m.model_dim;
  traces::rms_norm(t, T(), D);
  t.hold_product(T(), D, Q());
  t.hold_product(T(), D, K());
  t.hold_product(T(), D, K());
  traces::begin_attention(t, attention());
  traces::attend(t, attention());
  traces::attended(t, attention());
  t.hold_product(T(), Q(), D);
  t.release(T() * D);  // added to the residual stream
  traces::rms_norm(t, T(), D);
  if (m.is_mixture()) {
    t.hold_product(T(), D, m.experts);
    traces::choose_experts(t, mixture());
    traces::mixture_of_experts(t, mixture());
  } else {
    traces::feed_forward(t, T(), D, m.hidden_dim);
  }
  t.release(T() * D);
}

void WholeBlock::backward(Trace& t) const {
  const Index D = m.model_dim;
  if (m.is_mixture()) {
    traces::mixture_of_experts_backward(t, mixture());
    t.hold(T() * m.experts);  // dlogits
    t.release(T() * m.top_k);
    t.hold_product(D, T(), m.experts);
    t.hold_product(T(), m.experts, D);
    t.release(T() * D + T() * m.experts);
  } else {
    traces::feed_forward_backward(t, T(), D, m.hidden_dim);
  }
  traces::rms_norm_backward(t, T(), D);
  t.release(T() * D);
  t.hold_product(Q(), T(), D);  // d output
  t.hold_product(T(), D, Q());  // do
  traces::attend_backward(t, attention());
  t.release(T() * Q());
  t.hold_product(D, T(), Q());
  t.hold_product(D, T(), K());
  t.hold_product(D, T(), K());
  t.hold_product(T(), Q(), D);  // dn
  for (int i = 0; i < 2; ++i) {
    t.hold_product(T(), K(), D);
    t.release(T() * D);
  }
  traces::rms_norm_backward(t, T(), D);
  t.release(T() * (Q() + 2 * K()));  // dq, dk, dv
  t.release(T() * D);
  t.release(kept() - (m.is_mixture() ? T() * m.top_k * (D + 3 * m.hidden_dim) : 3 * T() * m.hidden_dim));
}

Costs single_costs(const DecoderSetting& s) {
  const DecoderModel& m = s.m;
  const Index T = s.batch * s.length, D = m.model_dim, V = m.vocabulary;
  WholeBlock block{m, s.batch, s.length};
  Trace t;
  Index parameters = 0;
  for (const Parameter& p : m.parameters()) parameters += num_elements(p.shape);
  t.hold(parameters);
  t.hold(2 * T);  // input
  t.hold(T * D);  // x
  for (Index b = 0; b < m.num_blocks; ++b) block.forward(t);
  traces::rms_norm(t, T, D);
  t.hold_product(T, D, V);
  traces::cross_entropy(t, T);
  t.release(T * D + 2 * T);
  t.hold(T);  // dloss
  t.release(T);
  traces::cross_entropy_backward(t, T);
  t.hold_product(V, T, D);  // dhead
  t.hold_product(T, V, D);  // d
  t.release(T * V);
  traces::rms_norm_backward(t, T, D);
  for (Index b = 0; b < m.num_blocks; ++b) block.backward(t);
  t.hold(V * D);  // of the table
  Costs costs;
  costs.parameter_bytes = parameters * bytes_per_element;
  costs.flops = t.flops();
  costs.peak_bytes = t.peak_bytes();
  return costs;
}

}  // namespace shard::decoders
