#include "engine/checkpoints/writing_plan.hpp"

#include <algorithm>
#include <tuple>

#include "engine/basics/ranges.hpp"
#include "engine/checkpoints/manifest.hpp"
#include "engine/device/gathered.hpp"

namespace shard {

std::map<std::string, PlannedTensor> plan_writing(Communicator& group, const std::vector<Trainable>& held) {
  std::map<std::string, PlannedTensor> plan;
  std::map<std::string, std::map<Ranges, std::vector<int>>> holders;  // of each part, by the tensor's name
  std::vector<std::tuple<std::string, Shape, Ranges>> mine;
  for (const Trainable& part : held) mine.emplace_back(part.name, part.whole, part.ranges);
  const auto all = gather_for_all(group, "parts to save", mine);
  for (std::size_t device = 0; device < all.size(); ++device)
    for (const auto& [name, shape, ranges] : all[device]) {
      plan[name].shape = shape;
      if (num_elements(shape_of(ranges)) > 0) holders[name][ranges].push_back(static_cast<int>(device));
    }
  std::vector<Index> load(all.size());  // elements to write, by device
  for (auto& [name, tensor] : plan) {
    std::vector<Ranges> tiles;
    for (const auto& [ranges, devices] : holders[name]) {
      const int writer = *std::ranges::min_element(
          devices, {}, [&](int device) { return load[static_cast<std::size_t>(device)]; });
      tiles.push_back(ranges);
      tensor.parts.push_back({ranges, writer});
      load[static_cast<std::size_t>(writer)] += num_elements(shape_of(ranges));
    }
    if (const std::string why = why_no_tiling(tensor.shape, tiles); !why.empty())
      refuse(Code::internal, "save " + name, "parts that tile " + to_string(tensor.shape), why);
  }
  return plan;
}

namespace {

/// Some rows of a part.
struct Piece {
  Ranges ranges;
  Index first_row = 0;  ///< relative to the part
};

std::vector<Piece> pieces_of(const Ranges& part) {
  std::vector<Piece> pieces;
  const Index row = num_elements(shape_of({part.begin() + 1, part.end()}));
  const Index rows = std::max<Index>(1, piece_elements / std::max<Index>(1, row));
  for (Index first = 0; first < part[0].size(); first += rows) {
    Ranges ranges = part;
    ranges[0] = {part[0].begin + first, std::min(part[0].begin + first + rows, part[0].end)};
    pieces.push_back({ranges, first});
  }
  return pieces;
}

/// Whether every part has whole rows. Then each part begins where the part before ends.
bool follow_each_other(const PlannedTensor& tensor) {
  return std::ranges::all_of(tensor.parts, [&](const PlannedPart& part) {
    return std::equal(part.ranges.begin() + 1, part.ranges.end(), tensor.shape.begin() + 1,
                      [](const Range& range, Index extent) {
                        return range == Range{0, extent};
                      });
  });
}

/// A piece's values: held by this device, or received from the writer.
void fetch(Communicator& group, int writer, const Piece& piece, const Trainable* mine,
           std::vector<float>& values) {
  const Shape shape = shape_of(piece.ranges);
  values.resize(static_cast<std::size_t>(num_elements(shape)));
  if (writer != group.device_id()) return group.receive(writer).read(0, values);
  const Index row = num_elements({shape.begin() + 1, shape.end()});
  mine->parameter.tensor->read((mine->parameter.begin + piece.first_row) * row, values);
}

void send_piece(Communicator& group, const Piece& piece, const Trainable& mine) {
  const Index first = mine.parameter.begin + piece.first_row;
  group.send(0, slice(*mine.parameter.tensor, 0, first, first + piece.ranges[0].size()));
}

}  // namespace

void gather_on_first(Communicator& group, const PlannedTensor& tensor, const Trainable* mine,
                     const std::function<void(std::span<const float>)>& take) {
  const bool is_first = group.device_id() == 0, streams = follow_each_other(tensor);
  std::vector<float> whole(is_first && !streams ? static_cast<std::size_t>(tensor.elements()) : 0), values;
  for (const auto& [ranges, writer] : tensor.parts)
    for (const Piece& piece : pieces_of(ranges)) {
      if (!is_first && writer == group.device_id()) send_piece(group, piece, *mine);
      if (!is_first) continue;
      fetch(group, writer, piece, mine, values);
      if (streams)
        take(values);
      else
        for_each_run(tensor.shape, piece.ranges, [&](Index in_whole, Index in_part, Index length) {
          std::copy_n(values.begin() + in_part, length, whole.begin() + in_whole);
        });
    }
  if (is_first && !streams) take(whole);
}

}  // namespace shard
