#include "engine/printable.hpp"

#include <fmt/format.h>

namespace shard {

std::string printable(std::string_view text, std::size_t limit) {
  std::string result;
  for (const char c : text) {
    if (result.size() >= limit) return result + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '\\') result += c;
      result += c;
    }
  }
  return result;
}

}  // namespace shard
