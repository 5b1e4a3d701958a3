#include "engine/basics/near_names.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "engine/basics/printable.hpp"

namespace shard {

namespace {

/// The fewest insertions, deletions and replacements of characters that make one text of the other.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j)
      diagonal = std::exchange(
          row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)}));
  }
  return row.back();
}

/// Without what people leave out or write in another way.
std::string plain(const std::string& name) {
  std::string letters;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

}  // namespace

std::string names_near(const std::string& name, const std::vector<std::string>& there) {
  constexpr std::size_t most_names = 20000, most_characters = 200, shown = 3;  // bounds the time
  std::vector<std::pair<std::size_t, std::string>> near;
  for (std::size_t i = 0; i < std::min(there.size(), most_names); ++i)
    near.emplace_back(edits(name.substr(0, most_characters), there[i].substr(0, most_characters)), there[i]);
  std::ranges::sort(near);
  std::string text;
  for (std::size_t i = 0; i < std::min(near.size(), shown); ++i)
    text += (i == 0 ? "; there are " : ", ") + printable(near[i].second);
  if (near.size() == 1) text.replace(text.find("are"), 3, "is");
  return near.empty() ? "; there is none" : text + (there.size() > shown ? ", ..." : "");
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& there) {
  constexpr std::size_t longest = 60, least_part = 3, shown = 5;
  const std::string given = plain(name);
  if (given.empty() || given.size() > longest) return "";
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& one : there) {
    const std::string known = plain(one);
    const std::size_t place = given.size() < least_part ? std::string::npos : known.find(given);
    const bool is_part = place != std::string::npos;
    const std::size_t distance = place == 0 ? 0 : is_part ? 1 : edits(given, known);
    if (distance <= std::max<std::size_t>(1, (given.size() + 1) / 3)) near.emplace_back(distance, one);
  }
  std::ranges::sort(near);
  if (!near.empty() && near.front().first == 0)  // it is how a name begins
    std::erase_if(near, [](const auto& one) { return one.first > 0; });
  if (near.size() > shown) near.resize(shown);
  std::string text;
  for (std::size_t i = 0; i < near.size(); ++i)
    text += (i == 0 ? ": did you mean " : i + 1 == near.size() ? " or " : ", ") + printable(near[i].second);
  return near.empty() ? "" : text + '?';
}

}  // namespace shard
