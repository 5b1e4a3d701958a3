#include "engine/layouts.hpp"

#include <fmt/format.h>

#include "engine/placed.hpp"

namespace shard {

namespace detail {

void require_slice(const Shape& local, const Shape& global, int axis, Index offset) {
  auto has_axis = [&](const Shape& s) { return axis < static_cast<int>(s.size()); };
  bool fits = has_axis(local) && has_axis(global) && local.size() == global.size() && offset >= 0 &&
              offset + local[axis] <= global[axis];
  for (std::size_t i = 0; fits && i < local.size(); ++i)
    if (static_cast<int>(i) != axis) fits = local[i] == global[i];
  if (!fits)
    refuse(Code::argument, fmt::format("Sharded<{}>", axis), fmt::format("a slice of {}", to_string(global)),
           fmt::format("{} at offset {}", to_string(local), offset));
}

void require_same_cut(const char* call, const Shape& a, Index a_offset, const Shape& b, Index b_offset) {
  if (a == b && a_offset == b_offset) return;
  refuse(Code::argument, call, "operands cut at the same places",
         fmt::format("{} at offset {} and {} at offset {}", to_string(a), a_offset, to_string(b), b_offset));
}

void require_same_owner(const char* call, int a, int b) {
  if (a != b)
    refuse(Code::argument, call, "operands of one owner", fmt::format("those of devices {} and {}", a, b));
}

void require_device(const char* call, int id) {
  if (id < 0 || id >= world().num_devices())
    refuse(Code::argument, call, fmt::format("a device of 0 to {}", world().num_devices() - 1),
           fmt::to_string(id));
}

void require_result(const char* call, const Shape& expected, const Shape& given) {
  if (given != expected)
    refuse(Code::internal, call, to_string(expected) + " as its result", to_string(given));
}

Shape my_part_of(Shape global, int axis) {
  Index& extent = global.at(static_cast<std::size_t>(axis));
  extent = part(extent, world().num_devices(), world().device_id()).size();
  return global;
}

Shape product_shape(const Shape& a, bool a_transposed, const Shape& b, bool b_transposed) {
  auto axis = [](const Shape& s, bool is_transposed, int i) { return s[is_transposed ? 1 - i : i]; };
  if (a.size() != 2 || b.size() != 2 || axis(a, a_transposed, 1) != axis(b, b_transposed, 0))
    refuse(Code::argument, "matmul", "two matrices (m, k) and (k, n)",
           fmt::format("{}{} and {}{}", to_string(a), a_transposed ? " transposed" : "", to_string(b),
                       b_transposed ? " transposed" : ""));
  return {axis(a, a_transposed, 0), axis(b, b_transposed, 1)};
}

}  // namespace detail

Replicated::Replicated(Tensor whole) {
  world().verify_replicated(whole);
  global_ = whole.shape();
  local_ = std::move(whole);
}

Partial::Partial(Tensor addend) {
  global_ = addend.shape();
  local_ = std::move(addend);
}

Owned::Owned(Tensor whole_or_nothing, Shape global, int owner) : owner_(owner) {
  detail::require_device("Owned", owner);
  if (is_mine() ? whole_or_nothing.shape() != global : whole_or_nothing.size() != 0)
    refuse(Code::argument, "Owned", is_mine() ? to_string(global) : "nothing, as another device owns it",
           to_string(whole_or_nothing.shape()));
  local_ = std::move(whole_or_nothing);
  global_ = std::move(global);
}

Owned Owned::mine(Tensor whole) {
  Shape global = whole.shape();
  return Owned(std::move(whole), std::move(global), world().device_id());
}

const Tensor& Owned::local() const& {
  if (!is_mine())
    refuse(Code::argument, "Owned::local", fmt::format("to be called on the owner, device {}", owner_),
           "a device that holds nothing");
  return local_;
}

Partial pack(std::vector<Partial>&& addends) {
  Index elements = 0;
  for (const Partial& p : addends) elements += num_elements(p.global_shape());
  Tensor row = Tensor::uninitialized({elements});
  Index at = 0;
  for (Partial& p : addends) {
    Tensor addend = detail::Access::take(std::move(p));
    Index size = addend.size();
    assign(Rows(row, at, at + size), std::move(addend).reshaped({size}));
    at += size;
  }
  addends.clear();
  return detail::Access::make<Partial>(std::move(row), {elements}, 0);
}

std::vector<Replicated> unpack(Replicated&& row, const std::vector<Shape>& shapes) {
  std::vector<Replicated> tensors;
  Index at = 0;
  for (const Shape& shape : shapes) {
    Tensor t = slice(row.local(), 0, at, at + num_elements(shape)).reshaped(shape);
    at += num_elements(shape);
    tensors.push_back(detail::Access::make<Replicated>(std::move(t), shape, 0));
  }
  if (at != row.local().size())
    refuse(Code::argument, "unpack", fmt::format("shapes of {} elements", row.local().size()),
           fmt::to_string(at));
  row = Replicated();
  return tensors;
}

bool Placed::is_here() const {
  return placement_.kind != Placement::Kind::owned || placement_.owner == world().device_id();
}

Tensor Placed::slice_of(const Tensor& whole) const {
  if (whole.shape() != global_)
    refuse(Code::argument, "slice_of", to_string(global_), to_string(whole.shape()));
  if (!is_here()) return Tensor();
  if (placement_.kind != Placement::Kind::sharded) return whole.clone();
  return slice(whole, placement_.axis, offset_, offset_ + local_.extent(placement_.axis));
}

}  // namespace shard
