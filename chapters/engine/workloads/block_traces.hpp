#pragma once

/// What a block holds and computes, part by part, as a trace: the vocabulary of the
/// closed forms of decoders.

#include <memory>

#include "engine/proof/layer_traces.hpp"
#include "engine/workloads/chosen_experts.hpp"

namespace shard::decoders {

/// The arguments of a closed form, for a decoder.
struct DecoderSetting : Setting {
  DecoderModel m;
  Index length;  ///< S

  DecoderSetting(const Setting& s)  // a conversion, so that a form can be given the general one
      : Setting(s), m(as_decoder(*s.workload).model()), length(as_decoder(*s.workload).length()) {}

  /// Tokens of the batch.
  Index tokens() const { return batch * length; }
  /// This device's part of an extent.
  Index mine(Index extent) const { return part(extent, devices, device).size(); }
  /// The choices of each expert in a block by some of the tokens' rows, (E); nothing without experts.
  template <class Rows>
  std::vector<Index> choices(Index block, const Rows& rows) const {
    if (!m.is_mixture()) return {};
    return dynamic_cast<const ChosenExperts&>(*data).counts(block, rows);
  }
  /// Elements of all parameters.
  Index parameters() const;
};

/// The sizes of a block on a device: T rows, some heads and some hidden units.
struct PartSizes {
  Index T, D;
  traces::AttentionSizes attention;
  traces::MixtureSizes mixture;  ///< F also without experts

  /// B sequences of S tokens, with heads, key-value heads and hidden units like these.
  PartSizes(const DecoderModel& m, Index B, Index S, std::vector<Index> choices, Index H, Index G, Index F)
      : T(B * S),
        D(m.model_dim),
        attention{B, H, G, m.head_dim, {{0, S}}, m.window},
        mixture{T, D, F, m.experts, m.top_k, std::move(choices)} {}
  /// The same, with all of them.
  PartSizes(const DecoderModel& m, Index B, Index S, std::vector<Index> choices)
      : PartSizes(m, B, S, std::move(choices), m.heads, m.key_heads, m.hidden_dim) {}

  Index Q() const { return attention.H * attention.d; }
  Index K() const { return attention.G * attention.d; }
  Index F() const { return mixture.F; }
  Index E() const { return mixture.num_experts; }
  bool is_mixture() const { return E() > 0; }
};

/// A block in a step. By default its rows are whole on a device and nothing is sent, as in `single`; variants
/// override what they do in another way.
class BlockTrace {
 public:
  /// `residual`: elements of the residual stream, if a device has not all of its T rows.
  BlockTrace(Trace& trace, PartSizes sizes, std::optional<Index> residual = std::nullopt)
      : t(trace), z(std::move(sizes)), residual_(residual.value_or(z.T * z.D)) {}
  virtual ~BlockTrace() = default;

  /// What each part returns is added to the residual stream.
  void forward();
  /// Holds the gradients of the weights at the end, as `put` leaves them.
  void backward();

 protected:
  /// Norm, projections, attention, and the product with its weights.
  virtual void attend();
  /// Of q, k and v, which are held, as is the result at the end.
  virtual void attention() { traces::attention(t, z.attention); }
  /// Norm, and the feed-forward, or the experts that the router chooses.
  virtual void think();

  virtual void attend_backward();
  /// Holds dq, dk and dv in the place of do.
  virtual void attention_backward();
  virtual void think_backward();
  void norm_backward();
  /// What happens to a weight's gradient when it has been computed.
  virtual void put(Index /*elements*/) {}

  /// Queries, keys and values, or the gradients of their weights.
  void project();
  void project_backward();
  void feed();
  /// Something that the forward pass kept is freed, by itself or by a layer.
  void release_kept(Index elements) { t.release(elements), kept_ -= elements; }
  void freed_by_layer(Index elements) { kept_ -= elements; }

  Trace& t;
  PartSizes z;

 private:
  Index residual_;
  Index kept_ = 0;
};

/// The blocks of a network, from the first to the last.
using BlockTraces = std::vector<std::unique_ptr<BlockTrace>>;
inline void forward(const BlockTraces& blocks) {
  for (const auto& block : blocks) block->forward();
}
inline void backward(const BlockTraces& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) (*block)->backward();
}

/// The loss of T whole rows, through the last norm and the head. Holds losses (T).
void loss(Trace& t, Index T, Index D, Index V);
/// Of whole rows of logits where the vocabulary is divided: three numbers a token are reduced. Holds losses
/// (T).
void divided_cross_entropy(Trace& t, Index T);
/// The gradient of the loss, up to that of the residual stream: holds those of the head, the norm, and the rows.
void loss_backward(Trace& t, Index T, Index D, Index V);

}  // namespace shard::decoders
