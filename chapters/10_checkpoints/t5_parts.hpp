#pragma once

/// The parts in which a T5 runs by a map, in the order of execution: a part is a residual block, an embedding, the
/// last norm of a stack, or the head. Each is a module of transformers' T5, and has some of the parameters.

#include <fmt/format.h>

#include "08_decoder/t5_stage.hpp"

namespace shard::checkpoints {

struct T5Part {
  enum class Kind { embedding, self, cross, feed_forward, norm, head };
  Kind kind;
  Side side;
  Index block;
  std::string module;
};

inline std::vector<T5Part> t5_parts(const T5Model& m) {
  using Kind = T5Part::Kind;
  std::vector<T5Part> all;
  for (const Side side : {Side::encoder, Side::decoder}) {
    const std::string stack = side == Side::encoder ? "encoder" : "decoder";
    all.push_back({Kind::embedding, side, 0, stack + ".embed_tokens"});
    for (Index b = 0; b < m.blocks(side); ++b) {
      int layer = 0;
      for (const Kind kind : {Kind::self, Kind::cross, Kind::feed_forward})
        if (kind != Kind::cross || side == Side::decoder)
          all.push_back({kind, side, b, fmt::format("{}.block.{}.layer.{}", stack, b, layer++)});
    }
    all.push_back({Kind::norm, side, 0, stack + ".final_layer_norm"});
  }
  all.push_back({Kind::head, Side::decoder, 0, "lm_head"});
  return all;
}

/// Calls visit(name, parameter) for each parameter of a part. The embedding and a tied head have one table. A
/// stack's first self-attention has the table of its positions.
template <class Visit>
void for_each_parameter_of(const T5Part& part, const T5Model& m, decoders::T5OwnedWeights& w,
                           const Visit& visit) {
  using Kind = T5Part::Kind;
  const auto& [kind, side, b, module] = part;
  auto& stack = w.stack(side);
  stack.blocks.resize(static_cast<std::size_t>(m.blocks(side)));
  if (kind == Kind::norm) return visit(t5_name(side, "final_norm"), stack.final_norm);
  if (kind == Kind::head && !m.is_tied) return visit(head_name(), w.own_head);
  if (kind == Kind::head || kind == Kind::embedding) return visit(embedding_name(), w.embedding);
  auto& block = stack.blocks[static_cast<std::size_t>(b)];
  if (kind == Kind::self && b == 0) visit(t5_name(side, "position_bias"), stack.position_bias);
  if (kind == Kind::self) return for_each_parameter(t5_name(side, b, "self_"), block.self, visit);
  if (kind == Kind::cross) return for_each_parameter(t5_name(side, b, "cross_"), block.cross, visit);
  visit(t5_name(side, b, "feed_forward_norm"), block.feed_forward_norm);
  if (m.has_gate()) visit(t5_name(side, b, "gate"), block.feed_forward.gate);
  visit(t5_name(side, b, "up"), block.feed_forward.up);
  visit(t5_name(side, b, "down"), block.feed_forward.down);
}

}  // namespace shard::checkpoints
