#pragma once

///     ./chapters/run 08 -n 4 train --variant experts --experts 7
///
/// A mixture's experts are divided over the devices, and the batch by sequences. Everything but the experts is
/// on every device. In each block, a token is sent to the devices of the experts that it chose, and their
/// answers are sent back: two all-to-alls forward, two backward (Lepikhin et al. 2020, "GShard", section 2.2).
/// As in Mixtral (Jiang et al. 2024), no expert is ever full, so no token is dropped.
/// Builds on: 08_decoder/single.hpp, 05_expert.

#include "experts_here.hpp"
#include "whole_rows.hpp"

namespace shard::decoders {

class ExpertsDecoder : public LanguageModel {
 public:
  ExpertsDecoder(Communicator& group, const DecoderModel& model)
      : LanguageModel(group), m_(model), mine_(part(m_.experts, num_devices(), device_id())) {}

  /// ## What this device owns
  /// Its experts of each block: E/N or one more, or none. Everything else, like every device.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, w_, [&]<class L>(const std::string& name, L& p) {
      if constexpr (std::same_as<L, Replicated>) p = load_replicated(c, name);
    });
    for (Index b = 0; b < m_.num_blocks; ++b)
      for (Index e = 0; e < m_.experts; ++e)
        for_each_parameter(m_, b, e, block(b).experts[static_cast<std::size_t>(e)],
                           [&](const std::string& name, Owned& p) {
                             p = load_owned(c, name, part_with(m_.experts, num_devices(), e));
                           });
  }

  /// ## Forward
  /// A device works on its own sequences. Only the experts need tokens of others.
  Placed forward(Tensor input) override {
    const Sharded<0> sequences = my_rows(std::move(input));             // (b, 2 S)   mine
    MyKept kept{.tokens = placed(tokens_of(sequences, m_))};            // T = b S of them
    Sharded<0> x = embedding_of(w_.embedding, sequences, kept.tokens);  // (T, D)
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, attend(m_, block(b), x, kept.tokens, k, cache(), b));
      accumulate(x, feed_forward_block(b, x, k));
      note_choice(b, k.choice, kept.tokens);
    }
    kept.n = rms_norm(x, w_.final_norm, m_.epsilon, m_.how, kept.norm);                 // (T, D)
    Sharded<0> z = scale(matmul(kept.n, transposed(w_.head(m_))), m_.how.logit_scale);  // (T, V)
    show_logits(z.local(), kept.tokens);
    Sharded<0> losses = cross_entropy(std::move(z), kept.tokens, m_.how, kept.softmax);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// An expert has worked on all tokens that chose it, so its device has its whole gradient. All other
  /// gradients are sums over the devices.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Sharded<0> dlosses = my_rows(std::move(dloss), kept.n);                                   // (T, 1)
    Sharded<0> dz = cross_entropy_backward(dlosses, kept.tokens, m_.how, std::move(kept.softmax));  // (T, V)
    Partial dhead = matmul(transposed(dz), kept.n);  // (V, D)   S0ᵀ·S0 = S1·S0 = P
    Sharded<0> d = matmul(dz, w_.head(m_));          // (T, D)
    dz = Sharded<0>();
    Partial dnorm;                                                                 // (D)
    d = rms_norm_backward(std::move(d), w_.final_norm, m_.how, kept.norm, dnorm);  // (T, D)
    gradients.put(final_norm_name(), all_reduce(std::move(dnorm)));                // P → R
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      GradientsFor<Sharded<0>> g;
      accumulate(d, feed_forward_block_backward(b, d, kept.blocks.back(), g, gradients));
      accumulate(d, attend_backward(m_, block(b), d, kept.tokens, kept.blocks.back(), g));
      for_each_parameter_but_experts(m_, b, g, [&](const std::string& name, Partial& p) {
        gradients.put(name, all_reduce(std::move(p)));  // P → R
      });
    }
    Partial dembedding = embedding_backward(d, kept.tokens.ids, m_.vocabulary);  // (V, D)
    if (m_.is_tied)
      accumulate(dembedding, std::move(dhead));  // the table is used twice
    else
      gradients.put(head_name(), all_reduce(std::move(dhead)));          // P → R
    gradients.put(embedding_name(), all_reduce(std::move(dembedding)));  // P → R
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyBlock = Block<Replicated, Replicated, Replicated, Replicated, Owned, Owned>;
  struct MyBlockKept : KeptFor<Sharded<0>> {
    ExpertChoice choice;  // of my tokens
    Route route;
    ExpertsKept<Owned, Owned> experts;  // mine, of the tokens that came
    Tensor answers;                     // (T · k, D)   to my tokens, by expert, then by token
  };
  using MyKept = Kept<MyBlockKept, Sharded<0>>;

  MyBlock& block(Index b) { return w_.blocks[static_cast<std::size_t>(b)]; }
  /// Tokens for an expert lie on its device.
  auto mine() const {
    return [this](Tensor rows) { return Owned::mine(group(), std::move(rows)); };
  }
  std::span<const OwnedExpert> my_experts(Index b) {
    return std::span(block(b).experts)
        .subspan(static_cast<std::size_t>(mine_.begin), static_cast<std::size_t>(mine_.size()));
  }

  /// The router's choice, tokens to their experts, and answers back.
  Sharded<0> feed_forward_block(Index b, const Sharded<0>& x, MyBlockKept& k) {
    const MyBlock& w = block(b);
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.feed_forward_norm);  // (T, D)
    k.choice = choose_experts(matmul(k.f, w.router), m_.top_k, m_.how);               // of (T, E)
    k.route = route_of(k.choice.counts(), arriving(group(), k.choice.counts()), num_devices(), device_id());
    Tensor n = gather_rows(k.f.local(), leaving_rows(k.choice));  // (T · k, D)   by expert, so by device
    n = all_to_all(std::move(n), k.route.to);                     // (m, D)       tokens for my experts
    require_announced(k.route, n);
    Tensor y = answers(mine(), std::move(n), k.route, my_experts(b), m_.how, k.experts);  // (m, D)
    k.answers = all_to_all(std::move(y), k.route.from);  // (T · k, D)   back, in the order in which they left
    return my_rows(combine_rows(k.answers, k.choice.slots(), k.choice.gates), k.f);  // (T, D)
  }

  /// Gradients of answers go to the experts, and gradients of tokens come back.
  Sharded<0> feed_forward_block_backward(Index b, const Sharded<0>& d, MyBlockKept& k,
                                         GradientsFor<Sharded<0>>& g, Gradients& gradients) {
    const MyBlock& w = block(b);
    const std::vector<Index> slots = k.choice.slots();
    Tensor dgates = dot_rows(d.local(), k.answers, slots, m_.top_k);  // (T, k)
    k.answers = Tensor();
    Tensor dy = gather_rows(d.local(), leaving_rows(k.choice));  // (T · k, D)
    dy = m_.how.rounded(scale_rows(std::move(dy), k.choice.gates, k.choice.in_order()));
    dy = all_to_all(std::move(dy), k.route.to);  // (m, D)   of my experts' answers
    std::vector<OwnedExpertGradients> dw;
    Tensor dn =
        answers_backward(mine(), std::move(dy), k.route, my_experts(b), m_.how, k.experts, dw);  // (m, D)
    put_experts(m_, b, block(b).experts, std::move(dw), gradients);
    dn = all_to_all(std::move(dn), k.route.from);                     // (T · k, D)   of my tokens
    Sharded<0> df = my_rows(combine_rows(dn, slots, m_.top_k), k.f);  // (T, D)
    dn = Tensor();
    const Sharded<0> dlogits =
        my_rows(choose_experts_backward(std::move(dgates), k.choice, m_.how), k.f);  // (T, E)
    g.router = matmul(transposed(k.f), dlogits);                                     // (D, E)   P
    df = std::move(df) + matmul(dlogits, transposed(w.router));                      // (T, D)
    return rms_norm_backward(std::move(df), w.feed_forward_norm, m_.how, k.feed_forward_norm,
                             g.feed_forward_norm);
  }

  DecoderModel m_;
  Range mine_;  // my experts
  Weights<MyBlock, Replicated, Replicated> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
