#include <algorithm>

#include "costs.hpp"
#include "ring_trace.hpp"

namespace shard::decoders {

namespace {

/// What both variants have: a device's tokens of every sequence, and whole gradients that are summed at once.
class SequenceBlockTrace : public BlockTrace {
 public:
  SequenceBlockTrace(const DecoderSetting& s, Trace& trace, const SequenceCut& cut, Index b)
      : BlockTrace(trace, PartSizes(s.m, cut.sequences, cut.size(s.device),
                                    s.choices(b, cut.rows_in_sequences(s.device)))),
        cut_(cut),
        device_(s.device) {}

 protected:
  void put(Index elements) override { t.all_reduce(elements); }

  const SequenceCut& cut_;
  int device_;
};

/// Ring attention: a device sees one piece of keys and values after the other.
class ContextBlockTrace : public SequenceBlockTrace {
 public:
  ContextBlockTrace(const DecoderSetting& s, Trace& trace, const SequenceCut& cut, Index b)
      : SequenceBlockTrace(s, trace, cut, b) {
    z.attention.queries = cut.runs_of(device_);
  }

 protected:
  void attention() override { ring().forward(); }
  void attention_backward() override { ring().backward(); }

 private:
  RingTrace ring() {
    return {t, z.attention, cut_, device_, [this](Index elements) { t.send(elements); }};
  }
};

/// Attention on whole sequences: a device has all tokens of some heads.
class UlyssesBlockTrace : public SequenceBlockTrace {
 public:
  UlyssesBlockTrace(const DecoderSetting& s, Trace& trace, const SequenceCut& cut, Index b)
      : SequenceBlockTrace(s, trace, cut, b),
        of_heads_(z.attention),
        divides_key_heads_(s.m.key_heads >= s.devices),
        units_(divides_key_heads_ ? s.m.key_heads : s.m.heads) {
    of_heads_.queries = {{0, s.length}};
    of_heads_.H = units_of(device_) * (s.m.heads / units_);
    if (divides_key_heads_) of_heads_.G = units_of(device_);
  }

 protected:
  void attention() override {
    to_heads(z.attention.H);
    if (divides_key_heads_) {
      for (int i = 0; i < 2; ++i) to_heads(z.attention.G);
    } else {
      for (int i = 0; i < 2; ++i) t.all_gather_in_place(keys(), Trace::Along::other_axis);
    }
    traces::attention(t, of_heads_);
    t.hold(of_heads_.of_queries());  // a copy of the result is kept
    to_tokens(z.attention.H);
  }
  void attention_backward() override {
    to_heads(z.attention.H);  // do
    traces::attention_backward(t, of_heads_);
    to_tokens(z.attention.H);
    for (int i = 0; i < 2; ++i) {
      if (divides_key_heads_)
        to_tokens(z.attention.G);
      else
        t.reduce_scatter(keys(), Trace::Along::other_axis);
    }
    t.release(of_heads_.of_queries());  // do
  }

 private:
  Index units_of(int device) const { return part(units_, cut_.devices(), device).size(); }
  /// Elements of each device's tokens of all keys.
  std::vector<Index> keys() const {
    std::vector<Index> elements;
    for (int d = 0; d < cut_.devices(); ++d) elements.push_back(cut_.rows(d).size() * z.K());
    return elements;
  }
  /// Elements of this device's tokens for each device's heads, of so many heads in all.
  std::vector<Index> by_heads(Index heads) const {
    std::vector<Index> elements;
    for (int d = 0; d < cut_.devices(); ++d)
      elements.push_back(z.T * units_of(d) * (heads / units_) * z.attention.d);
    return elements;
  }
  /// Elements of each device's tokens for this device's heads.
  std::vector<Index> by_tokens(Index heads) const {
    std::vector<Index> elements;
    for (int d = 0; d < cut_.devices(); ++d)
      elements.push_back(cut_.rows(d).size() * units_of(device_) * (heads / units_) * z.attention.d);
    return elements;
  }
  void to_heads(Index heads) { t.all_to_all(by_heads(heads), by_tokens(heads), Trace::Along::other_axis); }
  void to_tokens(Index heads) { t.all_to_all(by_tokens(heads), by_heads(heads), Trace::Along::other_axis); }

  traces::AttentionSizes of_heads_;
  bool divides_key_heads_;
  Index units_;
};

/// A step. The caller holds the input until its end, and so does the loss.
template <class Block>
Costs sequence_costs(const DecoderSetting& s, const SequenceCut& cut) {
  const Index rows = cut.rows(s.device).size(), D = s.m.model_dim, V = s.m.vocabulary;
  Trace t(s);
  t.hold(s.parameters());
  t.hold(2 * s.tokens());  // the input
  t.hold(rows * D);        // x
  BlockTraces blocks;
  for (Index b = 0; b < s.m.num_blocks; ++b) blocks.push_back(std::make_unique<Block>(s, t, cut, b));
  forward(blocks);
  loss(t, rows, D, V);
  t.release(rows * D);
  t.hold(rows);  // dL/dlosses, run by run: a run's losses and their gradient beside it
  for (const Range& run : cut.runs_of(s.device)) t.pass(2 * run.size());
  loss_backward(t, rows, D, V);
  t.all_reduce(D);
  backward(blocks);
  t.hold(V * D);  // of the embedding
  if (s.m.is_tied)
    t.release(V * D);
  else
    t.all_reduce(V * D);
  t.all_reduce(V * D);
  return t.costs(s.parameters());
}

}  // namespace

Costs context_costs(const DecoderSetting& s, CutSequences cut) {
  return sequence_costs<ContextBlockTrace>(s, cut(s.batch, s.length, s.devices));
}

Costs ulysses_costs(const DecoderSetting& s) {
  return sequence_costs<UlyssesBlockTrace>(s, SequenceCut::contiguous(s.batch, s.length, s.devices));
}

}  // namespace shard::decoders
