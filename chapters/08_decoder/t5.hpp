#pragma once

///     ./chapters/run 08 train --variant t5-single
///     ./chapters/run 08 -n 4 train --variant t5-tensor
///
/// An encoder-decoder like T5 (Raffel et al. 2020). The encoder's blocks read a source; every token sees all
/// others. The decoder's blocks predict the target: a token sees those before it, and all of what the encoder
/// returns. On one device, nothing is divided. Tensor parallelism (Shoeybi et al. 2019, section 3) divides
/// heads with their bias, hidden units and the vocabulary. Every device has what the encoder returns; its
/// gradient is reduced once, at the end. What both compute is in t5_stage.hpp: here, a stage is the network.
/// Builds on: 08_decoder/single.hpp, 08_decoder/tensor.hpp.

#include "t5_stage.hpp"
#include "tensor_weights.hpp"

namespace shard::decoders {

/// C: heads and hidden units. R: weights whose rows belong to them, and the vocabulary.
template <Layout C, Layout R>
class T5Engine : public LanguageModel {
 public:
  T5Engine(Communicator& group, const T5Model& model)
      : LanguageModel(group), stage_{*this, model, T5Split(model, 1, "even"), 0} {}

  /// ## What this device owns
  /// Everything; or some heads of each attention, some hidden units, some rows of the vocabulary, and all
  /// norms.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(stage_.m, stage_.w,
                       [&](const std::string& name, auto& p) { load(c, name, stage_.m, group(), p); });
  }

  /// ## Forward
  /// T_e tokens of sources, and T of targets. A pass that goes on with targets has no sources.
  Placed forward(Tensor input) override {
    auto [source, target] = read_with_source(input, stage_.m.vocabulary);
    T5Kept<Replicated, C> kept{.encoder = {std::move(source)}, .decoder = {std::move(target)}};
    stage_.forward({stage_.nothing(), {}}, kept);
    Replicated losses = stage_.losses(kept);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    auto put = [&](const std::string& name, auto gradient) { gradients.put(name, std::move(gradient)); };
    R dhead, dtable;                                                   // (V, D), or (V/N, D)
    const Replicated dlosses(group(), std::move(dloss));               // (T, 1)
    Replicated d = stage_.losses_backward(dlosses, kept, dhead, put);  // (T, D)
    stage_.backward({{}, std::move(d)}, kept, dtable, put);
    put_tables(stage_.m, std::move(dtable), std::move(dhead), put);
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(stage_.m, stage_.w); }

 private:
  T5Stage<Replicated, C, R> stage_;
  Tape<T5Kept<Replicated, C>> tape_;
};

using T5Single = T5Engine<Replicated, Replicated>;
using T5Tensor = T5Engine<Sharded<1>, Sharded<0>>;

}  // namespace shard::decoders
