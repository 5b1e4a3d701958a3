#include "engine/layers/layer_traces.hpp"

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

void feed_forward(Trace& trace, Index T, Index D, Index F) {
  trace.hold_product(T, D, F);  // g
  trace.hold_product(T, D, F);  // u
  trace.hold(T * F);            // h
  trace.hold_product(T, F, D);  // y
}

void feed_forward_backward(Trace& trace, Index T, Index D, Index F) {
  trace.hold_product(F, T, D);  // d down
  trace.hold_product(T, D, F);  // dh
  trace.release(T * F);         // h
  trace.hold_product(D, T, F);  // d gate
  trace.hold_product(D, T, F);  // d up
  trace.hold_product(T, F, D);  // dn
  trace.hold_product(T, F, D);  // what is added to it
  trace.release(T * D);
  trace.release(3 * T * F);  // dg, du, dh
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
  trace.hold(z.B * z.H * z.n * (2 + z.d));
}

void attend(Trace& trace, const AttentionSizes& z) {
  const Index q = z.n * z.d, k = z.m * z.d, scores = z.n * z.m;
  for (Index b = 0; b < z.B; ++b) {
    const Index sequence = z.n * z.H * z.d + 2 * z.m * z.G * z.d;
    trace.hold(sequence);
    for (Index h = 0; h < z.H; ++h) {
      trace.hold(q + 2 * k);
      trace.hold(scores);
      trace.product(z.n, z.d, z.m);
      trace.hold(2 * z.n);  // the piece's largest scores, and a copy of those before
      trace.hold(2 * z.n);  // both joined
      trace.hold(z.n);      // the larger ones
      trace.release(4 * z.n);
      trace.pass(z.n);  // sums of powers
      trace.product(z.n, z.m, z.d);
      trace.pass(q);                // powers times v
      trace.release(z.n + scores);  // the factor of what was seen before, and powers
      trace.release(q + 2 * k);
    }
    trace.release(sequence);
  }
}

namespace {

/// Heads joined to rows of these elements in all: each sequence, and then all of them; then heads are freed.
void join(Trace& trace, Index elements) {
  trace.hold(2 * elements);
  trace.release(elements);
}

}  // namespace

void attended(Trace& trace, const AttentionSizes& z) {
  join(trace, z.queries());
  trace.release(z.queries());  // of each head
}

void attend_backward(Trace& trace, const AttentionSizes& z) {
  const Index q = z.n * z.d, k = z.m * z.d, scores = z.n * z.m;
  trace.hold(z.queries() + 2 * z.keys());  // dq, dk, dv of each head
  for (Index b = 0; b < z.B; ++b) {
    const Index sequence = 3 * z.H * q + 2 * z.G * k;
    trace.hold(sequence);  // q, k, v, o, do
    for (Index h = 0; h < z.H; ++h) {
      trace.hold(3 * q + 2 * k);
      trace.hold(2 * scores);  // p, ds
      trace.pass(z.n);         // Σ p dp
      for (int i = 0; i < 5; ++i) trace.product(z.n, z.d, z.m);
      trace.release(2 * scores);
      trace.release(3 * q + 2 * k);
    }
    trace.release(sequence);
  }
  join(trace, z.queries());
  join(trace, z.keys());
  join(trace, z.keys());
  trace.release(z.queries() + 2 * z.keys());
}

}  // namespace shard::traces
