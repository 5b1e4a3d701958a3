#pragma once

/// A Mistral or a Mixtral that runs by a map. Its parts are the embedding, each block, the last norm, and the
/// head.
/// Builds on: 10_checkpoints/dispatched.hpp, 08_decoder/whole_rows.hpp.

#include <fmt/format.h>

#include "08_decoder/whole_rows.hpp"
#include "dispatched.hpp"

namespace shard::checkpoints {

using DispatchedDecoderWeights = decoders::Weights<decoders::WeightsFor<Owned>, Owned, Owned>;

class DispatchedDecoder : public DispatchedModel<DispatchedDecoderWeights> {
 public:
  DispatchedDecoder(Communicator& group, const DecoderModel& model, const std::vector<std::string>& places)
      : DispatchedModel(group, places), m_(model) {}

  /// The modules that are its parts, in the order in which they run.
  static std::vector<std::string> modules(const DecoderModel& m) {
    std::vector<std::string> all = {"model.embed_tokens"};
    for (Index b = 0; b < m.num_blocks; ++b) all.push_back(fmt::format("model.layers.{}", b));
    all.insert(all.end(), {"model.norm", "lm_head"});
    return all;
  }

  Placed forward(Tensor input) override {
    tokens_ = read(input, m_.vocabulary);
    forget_choices();
    return run_parts(0, tokens_.rows());
  }

 private:
  using Weights = DispatchedDecoderWeights;

  bool is_block(std::size_t p) const { return p > 0 && p <= static_cast<std::size_t>(m_.num_blocks); }
  bool is_head(std::size_t p) const { return p + 1 == num_parts(); }

  void visit_parameters(std::size_t p, Weights& w, const Visit& visit) const override {
    w.blocks.resize(static_cast<std::size_t>(m_.num_blocks));
    if (is_block(p)) return for_each_parameter(m_, static_cast<Index>(p) - 1, w.blocks[p - 1], visit);
    if (p == 0 || (is_head(p) && m_.is_tied)) return visit(embedding_name(), w.embedding);
    if (is_head(p)) return visit(head_name(), w.own_head);
    visit(final_norm_name(), w.final_norm);
  }

  Owned compute(std::size_t p, const Weights& w, Owned x) override {
    if (p == 0) return embedding(w.embedding, tokens_.ids);  // (T, D)
    if (is_block(p)) return block(static_cast<Index>(p) - 1, w.blocks[p - 1], std::move(x));
    if (is_head(p)) return losses(w.head(m_), x);
    Normed unused;
    return rms_norm(x, w.final_norm, m_.epsilon, m_.how, unused);  // (T, D)
  }
  Owned block(Index b, const decoders::WeightsFor<Owned>& w, Owned x) {
    decoders::KeptFor<Owned> k;
    const decoders::OnWholeRows<Owned> block{m_};
    accumulate(x, decoders::attend(block, w, x, tokens_, k, cache(), b));
    accumulate(x, decoders::feed_forward_block(block, w, x, k));
    note_choice(b, k.mixture.choice, tokens_);
    return x;
  }
  Owned losses(const Owned& head, const Owned& x) const {
    Owned z = scale(matmul(x, transposed(head)), m_.how.logit_scale);  // (T, V)
    show_logits(z, tokens_);
    TokenSoftmax unused;
    return cross_entropy(std::move(z), tokens_, m_.how, unused);  // (T, 1)
  }

  DecoderModel m_;
  Tokens tokens_;  // of this pass
};

}  // namespace shard::checkpoints
