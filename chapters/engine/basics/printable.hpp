#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shard {

/// Text from a user or a file, for a message: printable ASCII. Other bytes and the backslash are escaped. The
/// text is cut after about `limit` characters.
std::string printable(std::string_view text, std::size_t limit = 80);
/// "81,920".
std::string with_commas(std::int64_t number);

}  // namespace shard
