#pragma once

/// What the engines of this chapter know of a decoder's heads.

#include <algorithm>
#include <array>

#include "engine/layers/attention.hpp"
#include "engine/workloads/decoder_model.hpp"

namespace shard::decoders {

/// Whether the rows or the columns of a weight belong to heads.
inline bool is_of_heads(const std::string& name) {
  constexpr std::array weights = {"/query", "/key", "/value", "/output"};
  return std::ranges::any_of(weights, [&](const char* of) { return name.ends_with(of); });
}

inline Rotary rotary_of(const DecoderModel& m) {
  return {m.head_dim, m.rope_base, m.how};
}
/// All heads of some sequences.
inline AttentionHeads all_heads(const DecoderModel& m, Index sequences) {
  return {sequences, m.head_dim, key_heads_of({0, m.heads}, m.shared(), 0), m.key_heads, m.window, m.how};
}

}  // namespace shard::decoders
