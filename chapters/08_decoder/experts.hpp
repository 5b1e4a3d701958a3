#pragma once

///     ./chapters/run 08 -n 4 train --variant experts --experts 7
///
/// A mixture's experts are divided over the devices, and the batch by sequences. Everything but the experts
/// is on every device. In each block, a token is sent to the devices of the experts that it chose, and their
/// answers are sent back: two all-to-alls forward, two backward (Lepikhin et al. 2020, "GShard", section
/// 2.2). As in Mixtral (Jiang et al. 2024), no expert is ever full, so no token is dropped.
/// Builds on: 08_decoder/single.hpp, 05_expert.

#include "experts_here.hpp"
#include "vocabulary_loss.hpp"
#include "whole_rows.hpp"

namespace shard::decoders {

class ExpertsDecoder : public LanguageModel {
 public:
  ExpertsDecoder(Communicator& group, const DecoderModel& model) : LanguageModel(group), m_(model) {}

  /// ## What this device owns
  /// Its experts of each block: E/N or one more, or none. Everything else, like every device.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, w_, [&]<class L>(const std::string& name, L& p) {
      if constexpr (std::same_as<L, Replicated>) p = load_replicated(c, name);
    });
    for (Index b = 0; b < m_.num_blocks; ++b)
      for_each_part(m_, [&](const auto& part) {
        auto& p = *part.of(block(b));
        if constexpr (Is<decltype(p), Owned>)
          p = load_owned(c, part.name(m_, b), part_with(m_.experts, num_devices(), part.expert));
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
      accumulate(x, attend(block_, block(b), x, kept.tokens, k, cache(), b));
      accumulate(x, ask_experts(block_, block(b), x, k));
      note_choice(b, k.choice, kept.tokens);
    }
    Sharded<0> losses = losses_of(block_, *this, x, w_.final_norm, w_.head(m_), kept.tokens, kept);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// An expert has worked on all tokens that chose it, so its device has its whole gradient. All other
  /// gradients are sums over the devices.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Sharded<0> dlosses = my_rows(std::move(dloss), kept.n);  // (T, 1)
    Partial dhead;                                                 // (V, D)
    Sharded<0> d = losses_backward(block_, dlosses, w_.final_norm, w_.head(m_), kept.tokens, kept, dhead,
                                   by_name(*this, m_, gradients));  // (T, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      GradientsFor<Sharded<0>> g;
      const auto put_g = added_to(g, m_);
      auto put_mine = [&](std::vector<OwnedExpertGradients> dw) {
        put_experts(m_, b, block(b).experts, std::move(dw), gradients);
      };
      accumulate(d, ask_experts_backward(block_, block(b), d, kept.blocks.back(), put_mine, put_g));
      accumulate(d, attend_backward(block_, block(b), d, kept.tokens, kept.blocks.back(), put_g));
      for_each_part_but_experts(m_, [&](const auto& part) {
        gradients.put(part.name(m_, b), all_reduce(std::move(*part.of(g))));  // P → R
      });
    }
    Partial dembedding = embedding_backward(d, kept.tokens.ids, m_.vocabulary);  // (V, D)
    put_tables(m_, std::move(dembedding), std::move(dhead), by_name(*this, m_, gradients));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyBlock = Block<Replicated, Replicated, Replicated, Replicated, Owned, Owned>;
  using MyBlockKept = AskedKept<KeptFor<Sharded<0>>, Owned, Owned>;
  using MyKept = Kept<MyBlockKept, Sharded<0>>;

  /// A block on my sequences, whose experts are on all devices (experts_here.hpp).
  struct OnMySequences : OnWholeRows<Sharded<0>> {
    Communicator& group;

    Communicator& owners() const { return group; }
    std::span<const OwnedExpert> my_experts(const MyBlock& w) const {
      const Range mine = part(m.experts, group.num_devices(), group.device_id());
      return std::span(w.experts).subspan(static_cast<std::size_t>(mine.begin),
                                          static_cast<std::size_t>(mine.size()));
    }
    Owned for_expert(Tensor rows) const { return Owned::mine(group, std::move(rows)); }
    static Sharded<0> like(Tensor rows, const Sharded<0>& f) { return rows_like(std::move(rows), f); }
  };

  MyBlock& block(Index b) { return w_.blocks[static_cast<std::size_t>(b)]; }

  DecoderModel m_;
  OnMySequences block_{{m_}, group()};
  Weights<MyBlock, Replicated, Replicated> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
