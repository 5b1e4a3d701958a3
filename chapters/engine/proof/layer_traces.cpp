#include "engine/proof/layer_traces.hpp"

namespace shard::traces {

void rms_norm(Trace& trace, Index T, Index D) {
  trace.hold(T);      // r
  trace.hold(T * D);  // x̂
  trace.hold(T * D);  // y
}

void rms_norm_backward(Trace& trace, Index T, Index D) {
  trace.hold(D);      // dw
  trace.hold(T);      // the mean of dx̂ x̂
  trace.pass(T * D);  // x̂ times it
  trace.release(T);
}

void cross_entropy(Trace& trace, Index T) {
  trace.hold(3 * T);  // logits of the labels, largest logits, sums
  trace.hold(T);      // losses
  trace.release(3 * T);
}

void cross_entropy_backward(Trace& trace, Index T) {
  trace.hold(T);  // ones
  trace.pass(T);  // dloss
  trace.release(T);
}

void feed_forward(Trace& trace, Index T, Index D, Index F, bool has_gate) {
  trace.hold_product(T, D, F);  // g, or h
  if (has_gate) {
    trace.hold_product(T, D, F);  // u
    trace.hold(T * F);            // h
  }
  trace.hold_product(T, F, D);  // y
}

void feed_forward_backward(Trace& trace, Index T, Index D, Index F, bool has_gate) {
  trace.hold_product(F, T, D);  // d down
  trace.hold_product(T, D, F);  // dh
  if (has_gate) {
    trace.release(T * F);         // h
    trace.hold_product(D, T, F);  // d gate
  }
  trace.hold_product(D, T, F);  // d up
  trace.hold_product(T, F, D);  // dn
  if (has_gate) {
    trace.hold_product(T, F, D);  // what is added to it
    trace.release(T * D);
  }
  trace.release((has_gate ? 3 : 2) * T * F);  // dg, du, dh, or dh and h
}

void choose_experts(Trace& trace, const MixtureSizes& z) {
  trace.hold(z.T * z.top_k);  // chosen logits, then gates
  trace.pass(2 * z.T);        // largest of them, and sums
  trace.release(z.T * z.num_experts);
}

void mixture_of_experts(Trace& trace, const MixtureSizes& z) {
  for (Index t : z.choices) {
    trace.hold(t * z.D);  // the expert's rows
    feed_forward(trace, t, z.D, z.F);
  }
  trace.hold(z.all_choices() * z.D);  // answers joined
  trace.release(z.all_choices() * z.D);
  trace.hold(z.T * z.D);
}

void mixture_of_experts_backward(Trace& trace, const MixtureSizes& z) {
  trace.hold(z.T * z.top_k);             // of the gates
  trace.release(z.all_choices() * z.D);  // answers
  for (Index t : z.choices) {
    trace.hold(t * z.D);  // of the expert's answers
    feed_forward_backward(trace, t, z.D, z.F);
    trace.release(t * z.D);
  }
  trace.hold(z.all_choices() * z.D);  // the experts' dn joined
  trace.hold(z.T * z.D);              // dn
  trace.release(z.all_choices() * z.D);
  trace.release(z.all_choices() * z.D);  // the experts' dn
}

void begin_attention(Trace& trace, const AttentionSizes& z) {
  trace.hold(z.query_rows() * z.H * (2 + z.d));
}

namespace {

/// One head of a run of n queries and m keys of a sequence.
void attend_head(Trace& trace, Index n, Index m, Index d) {
  trace.hold(n * d + 2 * m * d);
  trace.hold_product(n, d, m);  // scores
  trace.hold(2 * n);            // the piece's largest scores, and a copy of those before
  trace.hold(2 * n);            // both joined
  trace.hold(n);                // the larger ones
  trace.release(4 * n);
  trace.pass(n);  // sums of powers
  trace.product(n, m, d);
  trace.pass(n * d);         // powers times v
  trace.release(n + n * m);  // the factor of what was seen before, and powers
  trace.release(n * d + 2 * m * d);
}

void attend_head_backward(Trace& trace, Index n, Index m, Index d) {
  const Index copies = 3 * n * d + 2 * m * d;  // q, k, v, o, do
  trace.hold(copies);
  trace.hold_product(n, d, m);  // p
  trace.product(m, n, d);       // dv
  trace.hold_product(n, d, m);  // ds
  trace.pass(n);                // Σ p dp
  trace.product(m, n, d);       // dk
  trace.product(n, m, d);       // dq
  trace.release(2 * n * m + copies);
}

/// Heads joined to rows of these elements in all: each run, and then all of them.
void join(Trace& trace, Index elements) {
  trace.hold(2 * elements);
  trace.release(elements);
}

/// Calls visit(n, m) for each run of n queries that sees one of a run of m keys, sequence by sequence.
template <class Visit>
void for_each_block(const AttentionSizes& z, const std::vector<Range>& keys, const Visit& visit) {
  for (Index b = 0; b < z.B; ++b)
    for (const Range& q : z.queries)
      for (const Range& k : keys)
        if (q.size() > 0 && k.size() > 0 && z.sees(q, k)) visit(q.size(), k.size());
}
/// Whether there is such a run, in a sequence.
bool sees_any(AttentionSizes z, const std::vector<Range>& keys) {
  z.B = 1;
  bool any = false;
  for_each_block(z, keys, [&](Index, Index) { any = true; });
  return any;
}

}  // namespace

void attend(Trace& trace, const AttentionSizes& z, const std::vector<Range>& keys) {
  trace.hold(z.of_bias(keys));  // of each head
  for_each_block(z, keys, [&](Index n, Index m) {
    const Index copies = n * z.H * z.d + 2 * m * z.G * z.d;
    trace.hold(copies);
    for (Index h = 0; h < z.H; ++h) attend_head(trace, n, m, z.d);
    trace.release(copies);
  });
  trace.release(z.of_bias(keys));
}

void attended(Trace& trace, const AttentionSizes& z) {
  join(trace, z.of_queries());
  trace.release(z.of_queries());  // of each head
}

void attend_backward(Trace& trace, const AttentionSizes& z, const std::vector<Range>& keys) {
  const Index dq = z.of_queries(), dk = z.of_keys(keys), bias = z.of_bias(keys);
  if (!sees_any(z, keys)) return trace.hold(dq + 2 * dk);
  trace.hold(dq + 2 * dk);  // of each head
  trace.hold(2 * bias);     // of each head, and its gradient
  for_each_block(z, keys, [&](Index n, Index m) {
    const Index copies = 3 * n * z.H * z.d + 2 * m * z.G * z.d;
    trace.hold(copies);
    for (Index h = 0; h < z.H; ++h) attend_head_backward(trace, n, m, z.d);
    trace.release(copies);
  });
  trace.pass(bias);  // the gradient of all heads
  trace.release(bias);
  join(trace, dq);
  join(trace, dk);
  join(trace, dk);
  trace.release(dq + 2 * dk + bias);
}

void attention(Trace& trace, const AttentionSizes& z) {
  attention(trace, z, z.queries);
}
void attention(Trace& trace, const AttentionSizes& z, const std::vector<Range>& keys) {
  begin_attention(trace, z);
  attend(trace, z, keys);
  attended(trace, z);
}
void attention_backward(Trace& trace, const AttentionSizes& z) {
  attend_backward(trace, z, z.queries);
}

}  // namespace shard::traces
