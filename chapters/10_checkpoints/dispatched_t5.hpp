#pragma once

/// A T5 that runs by a map. A part is a residual block, since a T5 may be cut between two of them; the
/// embeddings, the last norms and the head are parts, too. Beside the residual stream, two activations live
/// long: the bias of positions, which a stack's first block makes for the others, and what the encoder
/// returns. A device gets each of them once in a pass, when it first reads it.
/// Builds on: 10_checkpoints/dispatched.hpp, 10_checkpoints/t5_parts.hpp, 08_decoder/t5_stage.hpp.

#include <fmt/format.h>

#include "08_decoder/t5_stage.hpp"
#include "dispatched.hpp"
#include "t5_parts.hpp"

namespace shard::checkpoints {

class DispatchedT5 : public DispatchedModel<decoders::T5OwnedWeights> {
 public:
  DispatchedT5(Communicator& group, const T5Model& model, const std::vector<std::string>& places)
      : DispatchedModel(group, places), m_(model), parts_(t5_parts(model)) {}

  /// The modules that are its parts, in the order in which they run.
  static std::vector<std::string> modules(const T5Model& m) {
    std::vector<std::string> all;
    for (const T5Part& part : t5_parts(m)) all.push_back(part.module);
    return all;
  }

  /// A pass that goes on with targets has no sources: it begins with the decoder.
  Placed forward(Tensor input) override {
    auto [source, target] = read_with_source(input, m_.vocabulary);
    const bool is_first_pass = decoders::begins(target);
    encoder_ = {std::move(source)}, decoder_ = {std::move(target)};
    encoded_ = {};
    if (!is_first_pass) encoded_.here = Owned::mine(group(), Tensor({0, m_.model_dim}));
    for (int d = 0; d < num_devices() && !is_first_pass; ++d)
      encoded_.holders.push_back(d);  // all have nothing
    std::size_t first = 0;
    while (!is_first_pass && parts_[first].side == Side::encoder) ++first;
    return run_parts(first, decoder_.tokens.rows());
  }

 private:
  using Weights = decoders::T5OwnedWeights;
  using Kind = T5Part::Kind;
  /// An activation that some devices have. All devices know which.
  struct Shared {
    Owned here{};
    std::vector<int> holders{};  ///< the first one made it
  };
  /// A stack in this pass.
  struct Stack {
    Tokens tokens{};
    Shared bias{};  ///< (S S, H)
  };

  bool reads_tokens(std::size_t p) const override { return parts_[p].kind == Kind::embedding; }

  void visit_parameters(std::size_t p, Weights& w, const Visit& visit) const override {
    for_each_parameter_of(parts_[p], m_, w, visit);
  }

  /// ## What lives long
  /// Before the first self-attention of a stack, and before the encoder's last norm, nobody has it. The
  /// device that runs these parts makes it.
  void provide(std::size_t p, int device) override {
    const auto& [kind, side, b, module] = parts_[p];
    const bool makes_bias = kind == Kind::self && b == 0;
    const bool makes_encoded = kind == Kind::norm && side == Side::encoder;
    if (makes_bias) stack(side).bias.holders = {device};
    if (makes_encoded) encoded_.holders = {device};
    if (kind == Kind::self && !makes_bias) share(stack(side).bias, device);
    if (kind == Kind::cross) share(encoded_, device);
  }
  void share(Shared& shared, int device) {
    if (std::ranges::find(shared.holders, device) != shared.holders.end()) return;
    const int from = shared.holders.front();
    if (from == device_id()) send(device, shared.here.local());
    if (device == device_id()) shared.here = Owned::mine(group(), receive(from));
    shared.holders.push_back(device);
  }
  Stack& stack(Side side) { return side == Side::encoder ? encoder_ : decoder_; }

  /// ## A part
  Owned compute(std::size_t p, const Weights& w, Owned x) override {
    const auto& [kind, side, b, module] = parts_[p];
    if (kind == Kind::embedding) return embedding(w.embedding, stack(side).tokens.ids);  // (T, D)
    if (kind == Kind::norm) return last_norm(side, w.stack(side).final_norm, x);
    if (kind == Kind::head) return losses(w.head(m_), x);
    const auto& block = w.stack(side).blocks[static_cast<std::size_t>(b)];
    decoders::T5BlockKept<Owned, Owned> k;
    if (kind == Kind::self && b == 0) stack(side).bias.here = bias_of(side, w.stack(side).position_bias);
    if (kind == Kind::self)
      accumulate(x,
                 attend(m_, block.self, x,
                        decoders::own_tokens(m_, side, b, stack(side).tokens, stack(side).bias.here.local()),
                        k.self, nullptr, cache()));
    else if (kind == Kind::cross)
      accumulate(x, attend(m_, block.cross, x,
                           decoders::source_tokens(m_, b, decoder_.tokens, encoder_.tokens, m_.heads),
                           k.cross, &encoded_.here, cache()));
    else
      accumulate(x, feed_forward_block(m_, block, x, k));
    return x;
  }
  /// What the encoder returns stays here, for the decoder.
  Owned last_norm(Side side, const Owned& w, const Owned& x) {
    Normed unused;
    Owned n = rms_norm(x, w, m_.epsilon, m_.how, unused);  // (T, D)
    if (side == Side::decoder) return n;
    encoded_.here = std::move(n);
    return {};
  }
  Owned losses(const Owned& head, const Owned& x) const {
    Owned z = scale(matmul(x, transposed(head)), m_.how.logit_scale);  // (T, V)
    show_logits(z, decoder_.tokens);
    TokenSoftmax unused;
    return cross_entropy(std::move(z), decoder_.tokens, m_.how, unused);  // (T, 1)
  }

  Owned bias_of(Side side, const Owned& table) {
    const Tokens& tokens = stack(side).tokens;
    const std::vector<Index> buckets =
        buckets_of(tokens.positions, decoders::all_positions(tokens), m_.positions(side));
    return embedding(table, buckets);  // (S S, H)
  }
  T5Model m_;
  std::vector<T5Part> parts_;  // of the parts, in the order of execution
  Stack encoder_, decoder_;
  Shared encoded_;  // (T_e, D)   what the encoder returned
};

}  // namespace shard::checkpoints
