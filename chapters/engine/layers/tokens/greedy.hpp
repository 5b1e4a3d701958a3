#pragma once

#include "engine/layers/tokens/language_model.hpp"

namespace shard {

/// Generates `count` tokens after a prompt, each the likeliest one, or the lowest of several. A token of `ends` is
/// the last one. A collective: all devices return the same. A device sends only its largest logit, with the token.
std::vector<Index> generate_greedily(LanguageModel& engine, Prompt prompt, Index count,
                                     const std::vector<Index>& ends = {});

}  // namespace shard
