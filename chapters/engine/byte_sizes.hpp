#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shard {

/// "2GB", "1.5 GiB", "64KiB", "1000B" or a number of bytes: how many bytes, rounded down, up to 9·10^18. Nothing
/// for any other text. Capital letters and small ones are the same.
std::optional<std::int64_t> bytes_in(const std::string& text);

}  // namespace shard
