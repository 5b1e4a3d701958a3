#include "engine/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/pieces.hpp"

namespace shard {

namespace {

/// As many of the first dimension's indices as make a piece, from `begin` on.
Ranges piece_of(const Ranges& part, Index begin) {
  const Index row = num_elements(shape_of({part.begin() + 1, part.end()}));
  const Index rows = std::max<Index>(1, piece_elements / std::max<Index>(1, row));
  Ranges piece = part;
  piece[0] = {begin, std::min(begin + rows, part[0].end)};
  return piece;
}

}  // namespace

void checkpoint::refuse_unknown(const std::string& source, const std::string& name) {
  throw Error(Code::file, fmt::format("{}: expected a parameter {}, given none of that name", source, name));
}

std::vector<std::string> ListedCheckpoint::names() const {
  std::vector<std::string> all;
  for (const auto& [name, shape] : shapes_) all.push_back(name);
  return all;
}

Shape ListedCheckpoint::shape(const std::string& name) const {
  const auto found = shapes_.find(name);
  if (found == shapes_.end()) checkpoint::refuse_unknown(source_, name);
  return found->second;
}

std::vector<float> Checkpoint::read(const std::string& name, const Ranges& part) const {
  const Shape whole = shape(name);
  if (!fits(part, whole))
    refuse(Code::argument, "part of " + name, "indices of " + to_string(whole), to_string(part));
  return values(name, part);
}

Tensor Checkpoint::part(const std::string& name, const Ranges& ranges) const {
  if (ranges.empty() || num_elements(shape_of(ranges)) <= piece_elements) {
    Tensor t = Tensor::from_host(shape_of(ranges), read(name, ranges));
    t.charge_to(Purpose::parameters);
    return t;
  }
  Tensor t = Tensor::uninitialized(shape_of(ranges));
  t.charge_to(Purpose::parameters);
  Index done = 0;
  for (Ranges piece = piece_of(ranges, ranges[0].begin);; piece = piece_of(ranges, piece[0].end)) {
    const std::vector<float> values = read(name, piece);
    t.write(done, values);
    done += static_cast<Index>(values.size());
    if (piece[0].end == ranges[0].end) return t;
  }
}

}  // namespace shard
