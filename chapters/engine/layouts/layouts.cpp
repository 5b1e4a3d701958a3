#include "engine/layouts/layouts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/basics/ranges.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/this_device.hpp"
#include "engine/layouts/mesh.hpp"
#include "engine/layouts/placed.hpp"

namespace shard {

namespace detail {

bool is_observed() {
  return device().is_observed;
}

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

void require_gradient_of(const Shape& z, const Shape& dh) {
  if (dh != z)
    refuse(Code::argument, "relu_backward", fmt::format("the gradient of {}", to_string(z)),
           fmt::format("that of {}: a layer between left out, or the mask of another layer?", to_string(dh)));
}

void require_part(const Shape& local, const Ranges& mine, const Shape& global) {
  if (!std::ranges::equal(local, mine, {}, {}, &Range::size))
    refuse(Code::argument, "OnMesh",
           fmt::format("{}, this device's part of {}", to_string(shape_of(mine)), to_string(global)),
           to_string(local));
}

void require_same_owner(const char* call, const LayoutBase& a, int a_owner, int b_owner) {
  auto id = [&](int owner) { return a.group().members()[static_cast<std::size_t>(owner)]; };
  if (a_owner != b_owner)
    refuse(Code::argument, call, "operands of one owner",
           fmt::format("those of devices {} and {}", id(a_owner), id(b_owner)));
}

void require_same_group(const char* call, const LayoutBase& a, const LayoutBase& b) {
  if (&a.group() == &b.group()) return;
  const bool is_mesh = dynamic_cast<const Mesh*>(&a.group()) != nullptr;
  if (!is_mesh && a.group().group_id() == b.group().group_id()) return;
  refuse(Code::argument, call, "operands on one group of devices",
         fmt::format("those on {{{}}} and {{{}}}", fmt::join(a.group().members(), ", "),
                     fmt::join(b.group().members(), ", ")));
}

LayoutBase::LayoutBase() = default;
LayoutBase::LayoutBase(Communicator& group, Tensor local, Shape global)
    : group_(&group), local_(std::move(local)), global_(std::move(global)) {}
LayoutBase::LayoutBase(LayoutBase&&) noexcept = default;
LayoutBase& LayoutBase::operator=(LayoutBase&&) noexcept = default;
LayoutBase::~LayoutBase() = default;

Communicator& LayoutBase::group(SourceLine where) const {
  if (group_ == nullptr) {
    const CallSite call(where);
    refuse(Code::argument, "layout", "a tensor on a group of devices",
           "one that was never given, or is gone");
  }
  return *group_;
}

void require_result(const char* call, const Shape& expected, const Shape& given) {
  if (given != expected)
    refuse(Code::internal, call, to_string(expected) + " as its result", to_string(given));
}

void note_over_group(const LayoutBase& laid, const Tensor& local, const std::string& letter, int axis,
                     Index place) {
  if (local.memory() == nullptr) return;
  Lying lying{.group = laid.group().group_id(), .letters = {letter}, .whole = laid.global_shape()};
  for (Index extent : lying.whole) lying.mine.push_back({0, extent});
  if (axis >= 0) lying.mine.at(static_cast<std::size_t>(axis)) = {place, place + local.extent(axis)};
  note_layout(local, lying);
}

/// A tensor may lie by no rule of cuts: then no cut fits its extents.
void note_on_mesh(const LayoutBase& laid, const Tensor& local, std::vector<std::string> axes,
                  std::vector<std::string> letters, const std::vector<MeshCut>& cuts) {
  if (local.memory() == nullptr) return;
  Lying lying{laid.group().group_id(), std::move(axes), std::move(letters), laid.global_shape()};
  const bool is_divisible = std::ranges::none_of(cuts, [&](const MeshCut& cut) {
    return cut.dimension >= std::ssize(lying.whole) ||
           (cut.pieces > 0 && lying.whole[static_cast<std::size_t>(cut.dimension)] % cut.pieces != 0);
  });
  if (is_divisible) lying.mine = ranges_after(cuts, lying.whole);
  if (!std::ranges::equal(local.shape(), lying.mine, {}, {}, &Range::size)) lying.mine.clear();
  note_layout(local, lying);
}

Shape my_part_of(const Communicator& group, Shape global, int axis) {
  Index& extent = global.at(static_cast<std::size_t>(axis));
  extent = part(extent, group.num_devices(), group.device_id()).size();
  return global;
}

namespace {

/// "transposed(b) would fit": what to write where transposing one operand, or not, makes shapes fit. Or which
/// operand is empty.
std::string what_would_fit(const Shape& a, bool a_transposed, const Shape& b, bool b_transposed) {
  if (a.empty() || b.empty()) return fmt::format(": {} was moved from, or never set", a.empty() ? "a" : "b");
  if (a.size() != 2 || b.size() != 2) return "";
  const Index k_of_a = a[a_transposed ? 0 : 1], k_of_b = b[b_transposed ? 1 : 0];
  const Index m = a[a_transposed ? 1 : 0], n = b[b_transposed ? 0 : 1];
  auto other = [](const char* operand, bool is_transposed) {
    return is_transposed ? fmt::format(": {} without transposed would fit", operand)
                         : fmt::format(": transposed({}) would fit", operand);
  };
  if (m == k_of_b) return other("a", a_transposed);
  return n == k_of_a ? other("b", b_transposed) : "";
}

}  // namespace

Shape product_shape(const Shape& a, bool a_transposed, const Shape& b, bool b_transposed) {
  auto axis = [](const Shape& s, bool is_transposed, int i) { return s[is_transposed ? 1 - i : i]; };
  if (a.size() != 2 || b.size() != 2 || axis(a, a_transposed, 1) != axis(b, b_transposed, 0))
    refuse(Code::argument, "matmul", "two matrices (m, k) and (k, n)",
           fmt::format("{}{} and {}{}{}", to_string(a), a_transposed ? " transposed" : "", to_string(b),
                       b_transposed ? " transposed" : "", what_would_fit(a, a_transposed, b, b_transposed)));
  return {axis(a, a_transposed, 0), axis(b, b_transposed, 1)};
}

}  // namespace detail

Replicated::Replicated(Communicator& group, Tensor whole, SourceLine where) {
  const CallSite call(where);
  group.verify_replicated(whole);
  group_ = &group;
  global_ = whole.shape();
  local_ = std::move(whole);
  detail::note(*this);
}

Partial::Partial(Communicator& group, Tensor addend) {
  group_ = &group;
  global_ = addend.shape();
  local_ = std::move(addend);
  detail::note(*this);
}

Owned::Owned(Communicator& group, Tensor whole_or_nothing, Shape global, int owner, SourceLine where)
    : owner_(owner) {
  const CallSite call(where);
  if (owner < 0 || owner >= group.num_devices())
    refuse(Code::argument, "Owned", fmt::format("a device of 0 to {}", group.num_devices() - 1),
           fmt::to_string(owner));
  group_ = &group;
  if (is_mine() ? whole_or_nothing.shape() != global : whole_or_nothing.size() != 0)
    refuse(Code::argument, "Owned", is_mine() ? to_string(global) : "nothing, as another device owns it",
           to_string(whole_or_nothing.shape()));
  local_ = std::move(whole_or_nothing);
  global_ = std::move(global);
  detail::note(*this);
}

Owned Owned::mine(Communicator& group, Tensor whole) {
  Shape global = whole.shape();
  return Owned(group, std::move(whole), std::move(global), group.device_id());
}

const Tensor& Owned::local(SourceLine where) const& {
  if (!is_mine(where)) {
    const CallSite call(where);
    refuse(Code::argument, "Owned::local",
           fmt::format("to be called on the owner, device {}",
                       group().members()[static_cast<std::size_t>(owner_)]),
           "a device that holds nothing");
  }
  return local_;
}

Partial pack(std::vector<Partial>&& addends, SourceLine where) {
  const CallSite call(where);
  if (addends.empty()) refuse(Code::argument, "pack", "at least one addend", "none");
  Communicator& group = addends.front().group();
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
  return detail::Access::make<Partial>(group, std::move(row), {elements}, 0);
}

std::vector<Replicated> unpack(Replicated&& row, const std::vector<Shape>& shapes, SourceLine where) {
  const CallSite call(where);
  std::vector<Replicated> tensors;
  Index at = 0;
  for (const Shape& shape : shapes) {
    Tensor t = slice(row.local(), 0, at, at + num_elements(shape)).reshaped(shape);
    at += num_elements(shape);
    tensors.push_back(detail::Access::make<Replicated>(row.group(), std::move(t), shape, 0));
  }
  if (at != row.local().size())
    refuse(Code::argument, "unpack", fmt::format("shapes of {} elements", row.local().size()),
           fmt::to_string(at));
  row = Replicated();
  return tensors;
}

bool Placement::is_here(const Communicator& group) const {
  if (along != nullptr) return along->device_id() == owner;
  return kind != Kind::owned || group.device_id() == owner;
}

bool Placed::is_here() const {
  return placement_.is_here(*group_);
}

Tensor Placed::slice_of(const Tensor& whole, SourceLine where) const {
  const CallSite call(where);
  if (whole.shape() != global_)
    refuse(Code::argument, "slice_of", to_string(global_), to_string(whole.shape()));
  if (!is_here()) return Tensor();
  const Tensor* uncut = &whole;
  Tensor part;
  for (int d = 0; d < static_cast<int>(global_.size()); ++d) {
    const Index begin = begin_[static_cast<std::size_t>(d)], size = local_.extent(d);
    if (size == uncut->extent(d)) continue;
    part = slice(*uncut, d, begin, begin + size);
    uncut = &part;
  }
  return uncut == &whole ? whole.clone() : std::move(part);
}

}  // namespace shard
