#pragma once

#include <cstdint>

namespace shard {

/// The size of the pieces in which tensors move between files, the host and devices. A piece is read and
/// written several times, so it fits into a core's second-level cache. Pieces of 4 MiB are no faster.
inline constexpr std::int64_t piece_bytes = 256 << 10;
inline constexpr std::int64_t piece_elements = piece_bytes / 4;  // of float32

}  // namespace shard
