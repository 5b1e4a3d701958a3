#include "engine/record/tables.hpp"

#include <algorithm>

namespace shard {

Index NumberedValues::number_of(const Entry& value) {
  const auto [found, is_new] = numbers_.try_emplace(value.dump(), static_cast<Index>(all_.size()));
  if (is_new) all_.push_back(value);
  return found->second;
}

std::optional<Index> Tables::line(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || text.starts_with('/'))
    return {};  // the C++ library's are no lines of ours
  return lines.number_of({files.number_of(text.substr(0, colon)), std::stoi(text.substr(colon + 1))});
}

bool Layouts::fits(int device, Index number, const Entry& shape) const {
  const Entry& mine = all_[static_cast<std::size_t>(number)].at("parts").at(std::to_string(device));
  auto has_extent = [](const Entry& range, const Entry& extent) {
    return range[1].get<Index>() - range[0].get<Index>() == extent.get<Index>();
  };
  return mine.empty() || std::ranges::equal(mine, shape, has_extent);
}

Index Layouts::number_of(int device, const Entry& axes, const Entry& letters, const Entry& whole,
                         const Entry& mine) {
  const std::string me = std::to_string(device);
  std::vector<Index>& like = like_[Entry{axes, letters, whole}.dump()];
  for (const Index number : like) {
    Entry& parts = all_[static_cast<std::size_t>(number)]["parts"];
    if (!parts.contains(me)) parts[me] = mine;
    if (parts[me] == mine) return number;
  }
  like.push_back(static_cast<Index>(all_.size()));
  all_.push_back({{"axes", axes}, {"letters", letters}, {"whole", whole}, {"parts", {{me, mine}}}});
  return like.back();
}

}  // namespace shard
