#pragma once

/// Options of encoder-decoders that decoders lack.

#include "engine/workloads/decoder/options.hpp"

namespace shard {

/// A function makes the options at its first call, since kinds are made before other files' globals.
struct T5Options {
  Option<Index> encoder_blocks{"--encoder-blocks", 4, "Blocks of the encoder; --blocks are the decoder's"};
  Option<Index> source_length{"--source-length", 16, "Tokens of each sequence that the encoder reads"};
  Option<Index> buckets{"--buckets", 32, "Buckets of distances"};
  Option<Index> max_distance{"--max-distance", 128, "From it on, all distances are in one bucket"};
  Option<std::string> feed_forward =
      option_of("--feed-forward", "relu", "gated-gelu", "relu, or gated-gelu, with a third matrix");
};
inline const T5Options& t5_option() {
  static const T5Options options;
  return options;
}

}  // namespace shard
