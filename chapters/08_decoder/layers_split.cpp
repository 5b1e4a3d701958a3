#include "layers_split.hpp"

#include <fmt/format.h>

#include <numeric>

#include "engine/device/error.hpp"
#include "engine/options.hpp"
#include "engine/schedules/cuts.hpp"

namespace shard::decoders {

namespace {

[[noreturn]] void refuse_split(const std::string& expected, const std::string& given) {
  throw Error(Code::usage, fmt::format("--split: expected {}, given {}", expected, given));
}

/// The elements of one block's parameters.
Index elements_of_block(DecoderModel model) {
  model.num_blocks = 1;
  Index elements = 0;
  for (const Parameter& p : model.parameters())
    if (p.name.starts_with("block_")) elements += num_elements(p.shape);
  return elements;
}

/// Elements of each block, with what its device has before the first block and after the last one.
std::vector<Index> elements_with_ends(const DecoderModel& m) {
  std::vector<Index> elements(static_cast<std::size_t>(m.num_blocks), elements_of_block(m));
  const Index table = m.vocabulary * m.model_dim;
  elements.front() += table;
  elements.back() += m.model_dim + table;  // a copy, where the embedding is the head
  return elements;
}

}  // namespace

std::vector<Range> split_blocks(const std::vector<Index>& elements, int devices, const std::string& how) {
  const auto num_blocks = static_cast<Index>(elements.size());
  if (num_blocks < devices)
    throw Error(Code::usage,
                fmt::format("layers: expected at least as many blocks as devices, {}, given {} blocks",
                            devices, num_blocks));
  if (how == "bytes") return cut_by_cost(elements, devices);
  if (how == "even") {
    std::vector<Range> parts;
    for (int d = 0; d < devices; ++d) parts.push_back(part(num_blocks, devices, d));
    return parts;
  }
  const auto sizes = numbers_in(how, [](Index n) { return n >= 1 && n <= Index{1} << 30; });
  if (!sizes) refuse_split("even, bytes or numbers of blocks separated by commas", how);
  if (static_cast<int>(sizes->size()) != devices ||
      std::accumulate(sizes->begin(), sizes->end(), Index{0}) != num_blocks)
    refuse_split(fmt::format("{} numbers that add up to {} blocks", devices, num_blocks), how);
  return parts_of_sizes(*sizes);
}

std::vector<Range> split_blocks(const DecoderModel& model, int devices, const std::string& how) {
  return split_blocks(elements_with_ends(model), devices, how);
}

}  // namespace shard::decoders
