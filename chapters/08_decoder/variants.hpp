#pragma once

/// What this chapter's variants share, and those that are registered with chapter.cpp's and compiled apart from them.

#include <string>
#include <vector>

#include "engine/program/registry.hpp"
#include "engine/workloads/decoder/options.hpp"

namespace shard::decoders {

/// \name Options of variants that divide blocks. Each is made when it is first asked for: registrations run before main,
/// and those of another file may come first
/// @{
inline const Option<Index>& micro_batches() {
  static const Option<Index> number = micro_batches_option("Pieces of the batch that follow one another");
  return number;
}
inline const Option<std::string>& split() {
  static const Option<std::string> how = [] {
    Option<std::string> option(
        "--split", "even", "Which blocks a device has: even, by bytes, or a list of how many such as 3,1,1");
    option.type = "HOW";
    return option;
  }();
  return how;
}
/// @}

/// Decoders whose sequences are divided, with all heads on a device or with all tokens of some.
std::vector<Variant> sequence_variants();
/// Encoder-decoders like T5.
std::vector<Variant> t5_variants();

}  // namespace shard::decoders
