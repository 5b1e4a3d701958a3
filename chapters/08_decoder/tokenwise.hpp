#pragma once

/// The parts of a decoder that work on each token by itself: norms and feed-forwards. Each device has all
/// weights and some tokens, so these parts send nothing forward. Backward, a weight's gradient is a sum over
/// tokens: each device has an addend, and they are all-reduced.
/// Builds on: 08_decoder/single.hpp.

#include "blocks.hpp"

namespace shard::decoders {

/// t are the tokens here.
class TokenwiseDecoder : public LanguageModel {
 public:
  TokenwiseDecoder(Communicator& group, const DecoderModel& model) : LanguageModel(group), m_(model) {}

  /// ## What this device owns
  /// All weights.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, w_, [&](const std::string& name, Replicated& p) { p = load_replicated(c, name); });
  }
  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override {
    Trainables all;
    for_each_parameter(m_, w_, [&](const std::string& name, Replicated& p) { all.add(name, p); });
    return all;
  }

 protected:
  using MyBlock = Block<Replicated, Replicated, Replicated, Replicated>;
  /// What the feed-forward of a block keeps.
  struct ThinkKept {
    Normed norm;
    Sharded<0> f;  // (t, D)     what the feed-forward reads
    FeedForwardKept<Sharded<0>> feed_forward;
    MixtureKept<Sharded<0>, Replicated, Sharded<0>> mixture;
  };

  const MyBlock& block(Index b) const { return w_.blocks[static_cast<std::size_t>(b)]; }

  /// The feed-forward, or the experts that the router chooses. Each device has all experts.
  Sharded<0> think(const MyBlock& w, const Sharded<0>& x, ThinkKept& k) const {
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.norm);                     // (t, D)
    if (!m_.is_mixture()) return feed_forward(k.f, w.experts[0], m_.how, k.feed_forward);   // (t, D)
    ExpertChoice choice = choose_experts(matmul(k.f, w.router).local(), m_.top_k, m_.how);  // of (t, E)
    return mixture_of_experts(k.f, std::move(choice), w.experts, m_.how, k.mixture);        // (t, D)
  }
  Sharded<0> think_backward(Index b, const Sharded<0>& d, ThinkKept& k, Gradients& gradients) {
    const MyBlock& w = block(b);
    Sharded<0> dn;
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (std::size_t e = 0; e < dy.experts.size(); ++e) put(b, e, std::move(dy.experts[e]), gradients);
      const Sharded<0> dlogits = my_rows(
          choose_experts_backward(std::move(dy.gates).local(), k.mixture.choice, m_.how), d);  // (t, E)
      put(block_name(b, "router"), matmul(transposed(k.f), dlogits), gradients);               // (D, E)    P
      dn = std::move(dy.n) + matmul(dlogits, transposed(w.router));                            // (t, D)
    } else {
      auto dy = feed_forward_backward(d, k.f, w.experts[0], m_.how, std::move(k.feed_forward));
      dn = std::move(dy.n);
      put(b, 0, std::move(dy), gradients);
    }
    return norm_backward(block_name(b, "feed_forward_norm"), std::move(dn), w.feed_forward_norm, k.norm,
                         gradients);
  }

  Sharded<0> norm_backward(const std::string& name, Sharded<0> dy, const Replicated& w, const Normed& kept,
                           Gradients& gradients) {
    Partial dw;  // (D)
    Sharded<0> dx = rms_norm_backward(std::move(dy), w, m_.how, kept, dw);
    put(name, std::move(dw), gradients);
    return dx;
  }
  template <class D>
  void put(Index b, std::size_t e, D d, Gradients& gradients) {
    const auto expert = static_cast<Index>(e);
    put(feed_forward_name(m_, b, expert, "gate"), std::move(d.gate), gradients);  // (D, F)    P
    put(feed_forward_name(m_, b, expert, "up"), std::move(d.up), gradients);      // (D, F)    P
    put(feed_forward_name(m_, b, expert, "down"), std::move(d.down), gradients);  // (F, D)    P
  }

  /// A weight's gradient is reduced by itself, P → R. Frameworks reduce many in one call, a bucket.
  void put(const std::string& name, Partial dw, Gradients& gradients) {
    gradients.put(name, all_reduce(std::move(dw)));
  }

  DecoderModel m_;
  Weights<MyBlock, Replicated, Replicated> w_;
};

}  // namespace shard::decoders
