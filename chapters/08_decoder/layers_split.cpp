#include "layers_split.hpp"

#include <fmt/format.h>

#include <charconv>
#include <numeric>

#include "engine/device/error.hpp"

namespace shard::decoders {

namespace {

[[noreturn]] void refuse_split(const std::string& expected, const std::string& given) {
  throw Error(Code::usage, fmt::format("--split: expected {}, given {}", expected, given));
}

/// "3,1,1" as numbers.
std::vector<Index> numbers_in(const std::string& list) {
  std::vector<Index> numbers;
  const char* at = list.data();
  const char* end = at + list.size();
  while (true) {
    Index number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 1 || number > Index{1} << 30 || (stop != end && *stop != ','))
      refuse_split("even, bytes or numbers of blocks separated by commas", list);
    numbers.push_back(number);
    if (stop == end) return numbers;
    at = stop + 1;
  }
}

/// Parts of these sizes, one after the other.
std::vector<Range> parts_of(const std::vector<Index>& sizes) {
  std::vector<Range> parts;
  Index begin = 0;
  for (Index size : sizes) parts.push_back({begin, begin + size}), begin += size;
  return parts;
}

/// Elements of each block, with what its device has before the first block and after the last one.
std::vector<Index> elements_with_ends(const DecoderModel& m) {
  std::vector<Index> elements(static_cast<std::size_t>(m.num_blocks), elements_of_block(m));
  const Index table = m.vocabulary * m.model_dim;
  elements.front() += table;
  elements.back() += m.model_dim + table;  // a copy, where the embedding is the head
  return elements;
}

/// The cut whose largest part is as small as possible. For the first i blocks in p parts, `least` is the size
/// of that part, and `begin` the first block of the last part.
std::vector<Range> cut_by_size(const std::vector<Index>& sizes, int parts) {
  const auto n = static_cast<Index>(sizes.size());
  struct Cut {
    Index least, begin;
  };
  std::vector<std::vector<Cut>> cuts(static_cast<std::size_t>(parts) + 1,
                                     std::vector<Cut>(sizes.size() + 1, {INT64_MAX, 0}));
  cuts[0][0].least = 0;
  auto cut = [&](int p, Index i) -> Cut& {
    return cuts[static_cast<std::size_t>(p)][static_cast<std::size_t>(i)];
  };
  for (int p = 1; p <= parts; ++p)
    for (Index i = p; i <= n; ++i) {
      Index last_part = 0;
      for (Index begin = i - 1; begin >= p - 1; --begin) {
        last_part += sizes[static_cast<std::size_t>(begin)];
        const Index largest = std::max(last_part, cut(p - 1, begin).least);
        if (largest < cut(p, i).least) cut(p, i) = {largest, begin};
      }
    }
  std::vector<Range> ranges(static_cast<std::size_t>(parts));
  Index end = n;
  for (int p = parts; p > 0; end = cut(p--, end).begin)
    ranges[static_cast<std::size_t>(p) - 1] = {cut(p, end).begin, end};
  return ranges;
}

}  // namespace

Index elements_of_block(DecoderModel model) {
  model.num_blocks = 1;
  Index elements = 0;
  for (const Parameter& p : model.parameters())
    if (p.name.starts_with("block_")) elements += num_elements(p.shape);
  return elements;
}

std::vector<Range> split_blocks(const DecoderModel& model, int devices, const std::string& how) {
  if (model.num_blocks < devices)
    throw Error(Code::usage,
                fmt::format("layers: expected at least as many blocks as devices, {}, given {} blocks",
                            devices, model.num_blocks));
  if (how == "bytes") return cut_by_size(elements_with_ends(model), devices);
  std::vector<Index> sizes;
  if (how == "even")
    for (int d = 0; d < devices; ++d) sizes.push_back(part(model.num_blocks, devices, d).size());
  else
    sizes = numbers_in(how);
  if (static_cast<int>(sizes.size()) != devices ||
      std::accumulate(sizes.begin(), sizes.end(), Index{0}) != model.num_blocks)
    refuse_split(fmt::format("{} numbers that add up to {} blocks", devices, model.num_blocks), how);
  return parts_of(sizes);
}

}  // namespace shard::decoders
