#pragma once

#include "engine/layers/language_model.hpp"

namespace shard {

/// The tokens that follow a prompt, each the likeliest one after all before it; of equal ones the lowest. There
/// are `count`, or fewer where one of `ends` is the last. A collective: all devices return the same. Logits are
/// compared where they lie, and only the best of each device is sent, with its token.
std::vector<Index> generate_greedily(LanguageModel& engine, Prompt prompt, Index count,
                                     const std::vector<Index>& ends = {});

}  // namespace shard
