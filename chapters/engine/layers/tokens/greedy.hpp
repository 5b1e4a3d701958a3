#pragma once

#include "engine/layers/tokens/language_model.hpp"

namespace shard {

/// The tokens that follow a prompt, each the likeliest after those before it; of equally likely ones, the
/// lowest. `count` tokens, or fewer if one of `ends` is reached, which is then the last. A collective: all
/// devices return the same. Each device sends only its largest logit, with the token.
std::vector<Index> generate_greedily(LanguageModel& engine, Prompt prompt, Index count,
                                     const std::vector<Index>& ends = {});

}  // namespace shard
