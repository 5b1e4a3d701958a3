#include "engine/basics/printable.hpp"

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

std::string with_commas(std::int64_t number) {
  std::string digits = fmt::to_string(number);
  const std::ptrdiff_t sign = number < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > sign; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

}  // namespace shard
