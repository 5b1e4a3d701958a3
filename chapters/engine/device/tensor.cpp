/// The functions of a tensor that are the same for all backends.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <sstream>

#include "engine/device/device.hpp"

namespace shard {

Index num_elements(std::span<const Index> extents) {
  if (std::ranges::find(extents, 0) != extents.end()) return 0;
  Index product = 1;
  for (Index extent : extents) product *= extent;
  return product;
}

std::string to_string(const Shape& shape) {
  return shape.size() == 1 ? fmt::format("({},)", shape[0]) : fmt::format("({})", fmt::join(shape, ", "));
}

Shape place_of(Index element, const Shape& shape) {
  Shape place(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; element /= shape[axis])
    place[axis] = element % shape[axis];
  return place;
}

std::string_view name(ReduceOp op) {
  constexpr std::array<std::string_view, 5> names = {"sum", "avg", "max", "min", "prod"};
  return names[static_cast<std::size_t>(op)];
}

// Defined here, and not in the header, for shorter compile times of the engines.
Tensor::Tensor() = default;
Tensor::~Tensor() = default;

Tensor::Tensor(Tensor&&) noexcept = default;
// x = std::move(x) changes nothing. The default would leave the memory, and no shape.
Tensor& Tensor::operator=(Tensor&& other) noexcept {
  Tensor taken(std::move(other));
  std::swap(shape_, taken.shape_);
  std::swap(storage_, taken.storage_);
  return *this;
}

const Shape& Tensor::shape_of_nothing() {
  static const Shape shape = {0};
  return shape;
}

Index Tensor::extent(int axis, SourceLine where) const {
  if (axis < 0 || axis >= rank()) {
    const CallSite call(where);
    refuse(Code::argument, "extent", fmt::format("an axis of {}", to_string(shape())),
           fmt::format("axis {}", axis));
  }
  return shape()[static_cast<std::size_t>(axis)];
}

Tensor Tensor::reshaped(Shape shape, SourceLine where) && {
  const CallSite call(where);
  if (num_elements(shape) != size())
    refuse(Code::argument, "reshaped", fmt::format("{} elements as in {}", size(), to_string(this->shape())),
           to_string(shape));
  Tensor result = std::move(*this);
  result.shape_ = std::move(shape);
  return result;
}

Rows::Rows(Tensor& whole, Index first, Index last, SourceLine where)
    : tensor(&whole), begin(first), end(last) {
  const CallSite call(where);
  if (first < 0 || first > last || last > whole.extent(0))
    refuse(Code::argument, "Rows", fmt::format("rows of {}", to_string(whole.shape())),
           fmt::format("[{}, {})", first, last));
}

Shape Rows::shape() const {
  Shape shape = tensor->shape();
  shape[0] = end - begin;
  return shape;
}

namespace {

constexpr Index shown_at_each_end = 4;

/// Whether index i of a long axis is in the middle part, which is not printed.
bool is_left_out(Index i, Index extent) {
  return extent > 2 * shown_at_each_end + 1 && i >= shown_at_each_end && i < extent - shown_at_each_end;
}

void print_axis(std::ostream& out, const std::vector<float>& values, const Shape& shape, std::size_t axis,
                Index at) {
  if (axis == shape.size()) {
    out << fmt::format("{:g}", values[static_cast<std::size_t>(at)]);
    return;
  }
  bool innermost = axis + 1 == shape.size();
  out << '[';
  for (Index i = 0; i < shape[axis]; ++i) {
    if (is_left_out(i, shape[axis]) && i > shown_at_each_end) continue;
    if (i > 0) out << (innermost ? ", " : fmt::format("\n{:{}}", "", axis + 1));
    if (is_left_out(i, shape[axis]))
      out << "...";
    else
      print_axis(out, values, shape, axis + 1, at * shape[axis] + i);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  out << to_string(tensor.shape()) << ' ';
  print_axis(out, tensor.to_host(), tensor.shape(), 0, 0);
  return out;
}

void print_in_device_order(Communicator& group, std::ostream& out, const std::string& title,
                           const Tensor& tensor, SourceLine where) {
  const CallSite call(where);
  std::ostringstream mine;
  mine << fmt::format("device {}: {} ", this_device(), title) << tensor << '\n';
  for (const std::string& text : group.gather("print_in_device_order", mine.str())) out << text;
}

}  // namespace shard
