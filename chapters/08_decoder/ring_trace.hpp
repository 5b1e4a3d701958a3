#pragma once

/// What ring attention (ring_attention.hpp) holds and sends, as a trace.

#include <functional>

#include "engine/proof/layer_traces.hpp"
#include "sequence_cut.hpp"

namespace shard::decoders {

class RingTrace {
 public:
  /// Of a device with these queries, in a ring that a cut says. `send` books a message of so many elements.
  RingTrace(Trace& trace, const traces::AttentionSizes& sizes, const SequenceCut& cut, int device,
            std::function<void(Index)> send)
      : t(trace), z(sizes), cut_(cut), device_(device), send_(std::move(send)) {}

  /// Of q, k and v, which are held, as is the result at the end.
  void forward() {
    for (int step = 0; step < steps(); ++step) {
      pass_copies_on(step);
      if (step == 0) traces::begin_attention(t, z);
      traces::attend(t, z, cut_.runs_of(source(step)));
      arrive(step);
    }
    traces::attended(t, z);
  }
  /// Holds dq, dk and dv in the place of do.
  void backward() {
    t.hold(z.of_queries());  // dq
    for (int step = 0; step < steps(); ++step) {
      pass_copies_on(step);
      traces::attend_backward(t, z, cut_.runs_of(source(step)));
      if (step > 0) t.release(2 * piece(step));      // the sum so far, added
      if (step > 0) t.release(2 * piece(step - 1));  // what was sent of the piece before
      if (steps() > 1) pass_on(step);                // the sum
      arrive(step);
      t.release(z.of_queries());  // this step's addend
    }
    if (steps() > 1) t.release(2 * piece(steps() - 1));
    t.release(z.of_queries());  // do
  }

 private:
  int steps() const { return cut_.devices(); }
  /// The device whose piece is here.
  int source(int step) const { return (device_ - step + steps()) % steps(); }
  /// Elements of its keys, or of its values.
  Index piece(int step) const { return z.of_keys(cut_.runs_of(source(step))); }

  /// Both leave, and those of the next step have room.
  void pass_on(int step) {
    for (int i = 0; i < 2; ++i) send_(piece(step));
    t.hold(2 * piece(step + 1));
  }
  /// Unless they have been everywhere.
  void pass_copies_on(int step) {
    if (step + 1 == steps()) return;
    t.hold(2 * piece(step));
    pass_on(step);
  }
  /// The next keys and values are here: copies of those before have left, and the piece that came is freed.
  void arrive(int step) {
    if (step + 1 < steps()) t.release(2 * piece(step));
    if (step > 0) t.release(2 * piece(step));
  }

  Trace& t;
  const traces::AttentionSizes& z;
  const SequenceCut& cut_;
  int device_;
  std::function<void(Index)> send_;
};

}  // namespace shard::decoders
