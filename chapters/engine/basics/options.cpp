#include "engine/basics/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <regex>

namespace shard {

namespace {

template <class Number>
bool parses(const std::string& text, Number& value) {
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

}  // namespace

bool is_number(const std::string& text, bool (*is_good)(Index)) {
  Index value = 0;
  return parses(text, value) && is_good(value) && text == fmt::to_string(value);  // 010 would be taken for 8
}

bool is_number(const std::string& text, bool (*is_good)(double)) {
  double value = 0;
  return parses(text, value) && is_good(value);
}

bool is_same_value(const std::string& one, const std::string& other) {
  double a = 0, b = 0;
  return one == other || (parses(one, a) && parses(other, b) && a == b);
}

std::optional<std::vector<Index>> numbers_in(const std::string& text, bool (*is_good)(Index)) {
  std::vector<Index> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!is_number(word, is_good)) return std::nullopt;
    parses(word, numbers.emplace_back());
    begin = end + 1;
  }
  return numbers;
}

OptionText option_text(const std::string& name, Index initial, const std::string& help) {
  return {
      name, fmt::to_string(initial), help, "N", "a whole number from 1 to 2^30", [](const std::string& text) {
        return is_number(text, [](Index n) { return n >= 1 && n <= Index{1} << 30; });
      }};
}

OptionText option_text(const std::string& name, double initial, const std::string& help) {
  return {
      name, fmt::to_string(initial), help, "X", "a finite number, 0 or more", [](const std::string& text) {
        return is_number(text, [](double x) { return x >= 0 && std::isfinite(x); });
      }};
}

OptionText option_text(const std::string& name, const std::string& initial, const std::string& help) {
  return {name, initial, help, "NAME", "a text", [](const std::string&) { return true; }};
}

Index Options::operator[](const Option<Index>& option) const {
  return std::strtoll(text(option).c_str(), nullptr, 10);
}

double Options::operator[](const Option<double>& option) const {
  return std::strtod(text(option).c_str(), nullptr);
}

const std::string& Options::given(const std::string& name) const {
  const auto found = given_.find(name);
  if (found == given_.end()) refuse(Code::internal, name, "a value", "none");
  return found->second;
}

std::vector<std::string> Options::names() const {
  std::vector<std::string> all;
  for (const auto& [name, text] : given_) all.push_back(name);
  return all;
}

std::string Options::describe() const {
  std::string all;
  for (const auto& [name, text] : given_) all += fmt::format("{}{} {}", all.empty() ? "" : " ", name, text);
  return all;
}

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
