#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shard {

/// The bytes that a text names, rounded down, at most 9·10^18: "2GB", "1.5 GiB", "64KiB", "1000B" or a plain
/// number. Nothing for any other text. Case does not matter.
std::optional<std::int64_t> bytes_in(const std::string& text);

}  // namespace shard
