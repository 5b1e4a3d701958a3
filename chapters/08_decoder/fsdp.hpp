#pragma once

///     ./chapters/run 08 -n 4 train --variant fsdp
///
/// The batch is divided by sequences, and every parameter by rows (Zhao et al. 2023, "PyTorch FSDP", section
/// 3). A block is a unit: its parameters are gathered together, while the block before it computes, and freed
/// after use. In the backward pass blocks come in the other order, and a block's gradients are reduced while
/// the next one computes. A device computes with whole weights, on its own sequences.
/// Builds on: 08_decoder/single.hpp, 06_fully_sharded/prefetch.hpp.

#include "vocabulary_loss.hpp"
#include "whole_rows.hpp"

namespace shard::decoders {

class FsdpDecoder : public LanguageModel {
 public:
  FsdpDecoder(Communicator& group, const DecoderModel& model) : LanguageModel(group), m_(model) {}

  /// ## What this device owns
  /// Its rows of each parameter, also of a norm's D weights. A device may have none.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, shards_,
                       [&](const std::string& name, Sharded<0>& p) { p = load_sharded<0>(c, name); });
  }

  /// ## Forward
  /// Units are the embedding, each block, and at last the norm with the head. While a unit computes, the next
  /// one arrives. The last one stays for the backward pass, which begins with it.
  Placed forward(Tensor input) override {
    const Sharded<0> sequences = my_rows(std::move(input));  // (b, 2 S)   mine
    MyKept kept{placed(tokens_of(sequences, m_))};           // T = b S of them
    Replicated table = all_gather(shards_.embedding);        // (V, D)     S0 → R
    Arriving next = gather_block(0);
    Sharded<0> x = embedding_of(table, sequences, kept.tokens);  // (T, D)
    MyBlock w = arrived_block(next);
    table = Replicated();
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      const bool is_last = b + 1 == m_.num_blocks;
      next = is_last ? gather_last() : gather_block(b + 1);  // S0 → R, not waited for yet
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, attend(block_, w, x, kept.tokens, k, cache(), b));
      accumulate(x, feed_forward_block(block_, w, x, k));
      note_choice(b, k.mixture.choice, kept.tokens);
      if (!is_last) w = arrived_block(next);  // frees this block's
    }
    kept.final_norm = next[0].get(), kept.head = next[1].get();
    Sharded<0> losses = losses_of(block_, *this, x, kept.final_norm, kept.head, kept.tokens, kept);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// While a block computes, the block before it arrives, and the gradients of the block behind it leave. The
  /// gradient of a table that is used twice leaves as one sum.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Sharded<0> dlosses = my_rows(std::move(dloss), kept.n);  // (T, 1)
    Arriving next = gather_block(m_.num_blocks - 1);
    Partial dtable, dnorm;  // (V, D), (D)
    auto keep = [&](const std::string&, Partial p) { dnorm = std::move(p); };
    Sharded<0> d = losses_backward(block_, dlosses, kept.final_norm, kept.head, kept.tokens, kept, dtable,
                                   keep);  // (T, D)
    MyBlock w = arrived_block(next);
    kept.head = Replicated();
    Leaving leaving;
    leave(final_norm_name(), std::move(dnorm), leaving);
    if (!m_.is_tied) leave(head_name(), std::exchange(dtable, Partial()), leaving);
    for (Index b = m_.num_blocks - 1; b >= 0; --b) {
      if (b > 0) next = gather_block(b - 1);  // S0 → R, not waited for yet
      MyGradients g;
      const auto put_g = added_to(g, m_);
      accumulate(d, feed_forward_block_backward(block_, w, d, kept.blocks.back(), put_g));
      accumulate(d, attend_backward(block_, w, d, kept.tokens, kept.blocks.back(), put_g));
      kept.blocks.pop_back();
      w = b > 0 ? arrived_block(next) : MyBlock();  // frees this block's
      put(leaving, gradients);
      for_each_parameter(m_, b, g,
                         [&](const std::string& name, Partial& p) { leave(name, std::move(p), leaving); });
    }
    accumulate(dtable, embedding_backward(d, kept.tokens.ids, m_.vocabulary));  // (V, D)   P
    put(leaving, gradients);
    gradients.put(embedding_name(), reduce_scatter<0>(std::move(dtable)));  // (V/N, D)   P → S0
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }

  /// ## The step
  /// Parameters, gradients and state are divided alike, so nothing is gathered after the step.
  Trainables trainable() override { return trainables(m_, shards_); }

 private:
  using MyShards = Block<Sharded<0>, Sharded<0>, Sharded<0>, Sharded<0>>;
  using MyBlock = WeightsFor<Sharded<0>>;
  using MyGradients = GradientsFor<Sharded<0>>;
  using MyBlockKept = KeptFor<Sharded<0>>;
  struct MyKept : Kept<MyBlockKept, Sharded<0>> {
    Replicated final_norm{}, head{};  // (D), (V, D)
  };
  /// A unit's parameters on their way here, and gradients on their way to their owners.
  using Arriving = std::vector<Future<Replicated>>;
  using Leaving = std::vector<std::pair<std::string, Future<Sharded<0>>>>;

  Arriving gather_block(Index b) {
    Arriving all;
    for_each_parameter(m_, b, shards_.blocks[static_cast<std::size_t>(b)],
                       [&](const std::string&, const Sharded<0>& p) { all.push_back(all_gather_async(p)); });
    return all;
  }
  MyBlock arrived_block(Arriving& all) const {
    MyBlock w;
    auto next = all.begin();
    for_each_parameter(m_, 0, w, [&](const std::string&, Replicated& p) { p = (next++)->get(); });
    return w;
  }
  Arriving gather_last() {
    Arriving all;
    all.push_back(all_gather_async(std::as_const(shards_.final_norm)));
    all.push_back(all_gather_async(shards_.head(m_)));
    return all;
  }

  /// Starts the reduce-scatter of a gradient, P → S0, and does not wait for it.
  void leave(const std::string& name, Partial gradient, Leaving& leaving) {
    leaving.emplace_back(name, reduce_scatter_async<0>(std::move(gradient)));
  }
  static void put(Leaving& leaving, Gradients& gradients) {
    for (auto& [name, gradient] : leaving) gradients.put(name, gradient.get());
    leaving.clear();
  }

  DecoderModel m_;
  OnWholeRows<Sharded<0>> block_{m_};
  Weights<MyShards, Sharded<0>, Sharded<0>> shards_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
