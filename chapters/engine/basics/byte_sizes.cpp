#include "engine/basics/byte_sizes.hpp"

#include <cctype>
#include <cmath>
#include <regex>

namespace shard {

std::optional<std::int64_t> bytes_in(const std::string& text) {
  static const std::regex form("([0-9]+(?:\\.[0-9]+)?) ?(?:([KMGT]?)(i?)B)?", std::regex::icase);
  std::smatch parts;
  if (text.size() >= 32 || !std::regex_match(text, parts, form)) return std::nullopt;
  const bool has_letter = parts[2].length() > 0, is_binary = parts[3].length() > 0;
  if (is_binary && !has_letter) return std::nullopt;
  const auto letter = has_letter ? static_cast<char>(std::toupper(*parts[2].first)) : '\0';
  const std::size_t power = has_letter ? std::string("KMGT").find(letter) + 1 : 0;
  const double bytes = std::stod(parts[1]) * std::pow(is_binary ? 1024 : 1000, power);
  return bytes <= 9e18 ? std::optional(static_cast<std::int64_t>(bytes)) : std::nullopt;
}

}  // namespace shard
