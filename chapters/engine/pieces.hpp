#pragma once

#include <cstdint>

namespace shard {

/// Tensors go between files, the host and devices in pieces of so many bytes: what fits into a core's second
/// cache, since on its way a piece is read, looked at, and written several times. Pieces of 4 MiB are no faster.
inline constexpr std::int64_t piece_bytes = 256 << 10;
inline constexpr std::int64_t piece_elements = piece_bytes / 4;  // of float32

}  // namespace shard
