#pragma once

#include "engine/options.hpp"

namespace shard::decoders {

/// Whether the norms of `tensor` are sequence-parallel.
inline const Option<std::string> sequence_parallel = [] {
  Option<std::string> option("--sequence-parallel", "no",
                             "Divide the tokens between the parts of a block: yes or no");
  option.type = "HOW";
  option.expected = "yes or no";
  option.accepts = [](const std::string& text) { return text == "yes" || text == "no"; };
  return option;
}();

}  // namespace shard::decoders
