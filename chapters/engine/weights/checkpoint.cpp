#include "engine/weights/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/basics/near_names.hpp"
#include "engine/basics/ranges.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/device/books/memory.hpp"

namespace shard {

namespace {

/// The number of indices along an axis that make one piece.
Index indices_of_piece(const Ranges& part, std::size_t axis) {
  Index others = 1;
  for (std::size_t d = 0; d < part.size(); ++d)
    if (d != axis) others *= part[d].size();
  return std::max<Index>(1, piece_elements / std::max<Index>(1, others));
}

}  // namespace

void Checkpoint::refuse_unknown(const std::string& name) const {
  throw Error(Code::file, "{}: expected a parameter {}, given none of that name{}", source(), name,
              names_near(name, names()));
}

std::vector<std::string> ListedCheckpoint::names() const {
  std::vector<std::string> all;
  for (const auto& [name, shape] : shapes_) all.push_back(name);
  return all;
}

Shape ListedCheckpoint::shape(const std::string& name) const {
  const auto found = shapes_.find(name);
  if (found == shapes_.end()) refuse_unknown(name);
  return found->second;
}

std::vector<float> Checkpoint::read(const std::string& name, const Ranges& part) const {
  const Shape whole = shape(name);
  if (!fits(part, whole))
    refuse(Code::argument, "part of " + name, "indices of " + to_string(whole), to_string(part));
  return values(name, part);
}

std::vector<float> Checkpoint::read(const std::string& name, int axis, Index begin, Index end) const {
  return read(name, along(shape(name), axis, begin, end));
}

void Checkpoint::read_in_pieces(const std::string& name, const Ranges& part, const Take& take) const {
  if (part.empty() || num_elements(shape_of(part)) <= piece_elements) return take(part, read(name, part));
  const auto axis = static_cast<std::size_t>(outermost_axis(name));
  const Index most = indices_of_piece(part, axis);
  Ranges piece = part;
  for (Index begin = part[axis].begin; begin < part[axis].end; begin = piece[axis].end) {
    piece[axis] = {begin, std::min(begin + most, part[axis].end)};
    take(piece, read(name, piece));
  }
}

Tensor Checkpoint::slices(const std::string& name, const Ranges& ranges) const {
  const int axis = outermost_axis(name);
  const auto a = static_cast<std::size_t>(axis);
  Tensor t = Tensor::uninitialized(shape_of(ranges));
  t.charge_to(Purpose::parameters);
  if (!tensors_have_elements()) {
    pass_over(name, ranges);
    return t;
  }
  read_in_pieces(name, ranges, [&](const Ranges& piece, std::span<const float> values) {
    if (ranges.empty())
      t = Tensor::from_host({}, values);
    else
      t.write(axis, piece[a].begin - ranges[a].begin, piece[a].end - ranges[a].begin, values);
  });
  t.charge_to(Purpose::parameters);
  return t;
}

Tensor Checkpoint::slice(const std::string& name, int axis, Index begin, Index end) const {
  return slices(name, along(shape(name), axis, begin, end));
}

Tensor Checkpoint::whole(const std::string& name) const {
  return slices(name, all_of(shape(name)));
}

namespace {

class HostCheckpoint : public ListedCheckpoint {
 public:
  HostCheckpoint(std::map<std::string, HostTensor> tensors, std::string source)
      : ListedCheckpoint(shapes_of(tensors), std::move(source)), tensors_(std::move(tensors)) {}

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    const HostTensor& whole = tensors_.at(name);
    std::vector<float> values;
    for_each_run(whole.shape, part, [&](Index first, Index, Index length) {
      const auto begin = whole.values.begin() + first;
      values.insert(values.end(), begin, begin + length);
    });
    return values;
  }

  std::map<std::string, HostTensor> tensors_;
};

}  // namespace

std::unique_ptr<Checkpoint> host_checkpoint(std::map<std::string, HostTensor> tensors, std::string source) {
  return std::make_unique<HostCheckpoint>(std::move(tensors), std::move(source));
}

}  // namespace shard
