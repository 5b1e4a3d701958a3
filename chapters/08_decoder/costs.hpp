#pragma once

/// What the variants of this chapter send, compute and hold.

#include "engine/layers/layer_traces.hpp"
#include "engine/workloads/decoder.hpp"

namespace shard::decoders {

/// The arguments of a closed form, for a decoder.
struct DecoderSetting : Setting {
  DecoderModel m;
  Index length;  ///< S

  DecoderSetting(const Setting& s)  // a conversion, so that a form can be given the general one
      : Setting(s), m(as_decoder(*s.workload).model()), length(as_decoder(*s.workload).length()) {}
};

/// A block whose rows are whole on a device: B sequences of S tokens, T = B S.
struct WholeBlock {
  const DecoderModel& m;
  Index B, S;
  std::vector<Index> choices = {};  ///< of each expert, by these tokens

  Index T() const { return B * S; }
  Index Q() const { return m.query_width(); }
  Index K() const { return m.key_width(); }
  traces::AttentionSizes attention() const { return {B, S, S, m.heads, m.key_heads, m.head_dim}; }
  traces::MixtureSizes mixture() const {
    return {T(), m.model_dim, m.hidden_dim, m.experts, m.top_k, choices};
  }

  void forward(Trace& t) const;
  void backward(Trace& t) const;
  /// What a forward pass keeps of it.
  Index kept() const;
};

Costs single_costs(const DecoderSetting& s);

}  // namespace shard::decoders
