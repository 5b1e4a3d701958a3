#pragma once

/// The layouts themselves. (Part of layouts.hpp.)

#include <concepts>
#include <type_traits>

#include "engine/device/device.hpp"

namespace shard {

class Replicated;
template <int Axis>
class Sharded;
class Partial;
class Owned;
template <class Axes, class... Letters>
class OnMesh;

template <class T, class L>
concept Is = std::same_as<std::remove_cvref_t<T>, L>;
/// The axis along which a layout is cut, or -1.
template <class T>
inline constexpr int axis_of = -1;
template <int Axis>
inline constexpr int axis_of<Sharded<Axis>> = Axis;
template <class T>
concept Slice = (axis_of<std::remove_cvref_t<T>> >= 0);

namespace detail {

struct Access;

template <class T>
inline constexpr const char* letter_of_slice = "S";
template <class T>
inline constexpr bool is_future = false;
template <class T>
inline constexpr bool is_future<Future<T>> = true;
template <class T, int Axis>
concept SliceElsewhere = Slice<T> &&(axis_of<std::remove_cvref_t<T>> != Axis);
/// Whether a tensor is one addend of a sum: over its group, or over an axis of its mesh.
template <class T>
inline constexpr bool is_unreduced = std::same_as<T, Partial>;
template <class Axes, class... Letters>
inline constexpr bool is_unreduced<OnMesh<Axes, Letters...>> = (std::same_as<Letters, Partial> || ...);
template <class T>
concept Unreduced = is_unreduced<std::remove_cvref_t<T>>;
template <class T>
concept Awaitable = is_future<std::remove_cvref_t<T>>;

/// The base class of all layouts: the group, the tensor that this device holds, and the shape of the whole.
class LayoutBase {
 public:
  /// \throws Error argument when this layout was made without a tensor.
  Communicator& group(SourceLine where = SourceLine::current()) const;
  const Shape& global_shape() const { return global_; }
  /// Whether this layout was made without a tensor, or its tensor has no elements.
  bool is_empty() const { return group_ == nullptr || num_elements(global_) == 0; }

 protected:
  friend struct Access;
  LayoutBase();
  LayoutBase(Communicator& group, Tensor local, Shape global);
  LayoutBase(LayoutBase&&) noexcept;
  LayoutBase& operator=(LayoutBase&&) noexcept;
  ~LayoutBase();

  Communicator* group_ = nullptr;
  Tensor local_;
  Shape global_;
};

/// \throws Error argument unless `local` is rows [offset, offset + extent) of `global` along `axis`.
void require_slice(const Shape& local, const Shape& global, int axis, Index offset);
/// \throws Error argument unless both operands are cut at the same places.
void require_same_cut(const char* call, const Shape& a, Index a_offset, const Shape& b, Index b_offset);
/// \throws Error argument unless a gradient has the shape of what it is the gradient of.
void require_gradient_of(const Shape& z, const Shape& dh);
/// \throws Error argument unless `local` is the shape of these indices, this device's part
void require_part(const Shape& local, const Ranges& mine, const Shape& global);
void require_same_owner(const char* call, const LayoutBase& a, int a_owner, int b_owner);
/// \throws Error argument unless both groups have the same devices in the same order.
void require_same_group(const char* call, const LayoutBase& a, const LayoutBase& b);
/// Whether the device has observers (books/observer.hpp).
bool is_observed();
/// Tells observers how a tensor lies, if there are any.
template <class L>
void note(const L& laid);
/// Compares what a collective returned with what its layout says. \throws Error internal when they differ
void require_result(const char* call, const Shape& expected, const Shape& given);
/// The shape of this device's part of a tensor cut along `axis` over the group, by the rule of split.hpp.
Shape my_part_of(const Communicator& group, Shape global, int axis);

}  // namespace detail

/// One cut of a tensor: along a dimension, over the devices of a group, by the rule of split.hpp. Several
/// cuts of one dimension are nested: each piece of the first is cut by the second. Six rows that are cut over
/// two devices and again over two make pieces of 2, 1, 2 and 1 rows.
struct MeshCut {
  int dimension = 0;
  Communicator* over = nullptr;  ///< null: the whole group of the tensor
  Index pieces = 0;              ///< how many equal pieces stay whole, such as heads; 0: each index

  bool operator==(const MeshCut&) const = default;
};

/// Every device holds the whole tensor, and all hold the same values.
class Replicated : public detail::LayoutBase {
 public:
  Replicated() = default;
  Replicated(Replicated&&) noexcept = default;
  Replicated& operator=(Replicated&&) noexcept = default;
  /// Claims that every device passes the same values; a checked run verifies it (Error mismatch).
  Replicated(Communicator& group, Tensor whole, SourceLine where = SourceLine::current());
  const Tensor& local() const& { return local_; }
  Tensor local() && { return std::move(local_); }
  Tensor& parameter() { return local_; }  ///< for updates in place
#include "engine/layouts/refused/replicated.inc"
};

/// Every device holds the whole matrix, for products alone. It may be in bf16, two numbers in one element.
class ReplicatedFactor : public detail::LayoutBase {
 public:
  ReplicatedFactor() = default;
  /// `whole`: the matrix, of shape `global`, or to_bf16's result for it.
  ReplicatedFactor(Communicator& group, Tensor whole, Shape global, bool is_in_bf16)
      : LayoutBase(group, std::move(whole), std::move(global)), is_in_bf16_(is_in_bf16) {
    detail::note(*this);
  }

 private:
  friend struct detail::Access;
  bool is_in_bf16_ = false;
};

/// Every device holds a slice along `Axis`.
template <int Axis>
class Sharded : public detail::LayoutBase {
 public:
  static_assert(Axis >= 0, "Sharded<Axis>: an axis is counted from 0");
  Sharded() = default;
  Sharded(Sharded&&) noexcept = default;
  Sharded& operator=(Sharded&&) noexcept = default;
  /// Claims that `slice` starts at `offset` along Axis of a tensor of shape `global`.
  Sharded(Communicator& group, Tensor slice, Shape global, Index offset,
          SourceLine where = SourceLine::current())
      : LayoutBase(group, std::move(slice), std::move(global)), offset_(offset) {
    const CallSite call(where);
    detail::require_slice(local_.shape(), global_, Axis, offset_);
    detail::note(*this);
  }
  const Tensor& local() const& { return local_; }
  Tensor local() && { return std::move(local_); }
  Tensor& parameter() { return local_; }  ///< for updates in place
  /// The index along Axis at which this device's slice begins.
  Index offset() const { return offset_; }
#include "engine/layouts/refused/sharded.inc"

 private:
  friend struct detail::Access;
  Index offset_ = 0;
};

/// Every device holds an addend, and the tensor is the sum of all addends. An addend alone has no meaning, so
/// this class has no local().
class Partial : public detail::LayoutBase {
 public:
  Partial() = default;
  Partial(Partial&&) noexcept = default;
  Partial& operator=(Partial&&) noexcept = default;
  Partial(Communicator& group, Tensor addend);
#include "engine/layouts/refused/partial.inc"
};

/// The whole tensor on device `owner` of the group; other devices hold nothing.
class Owned : public detail::LayoutBase {
 public:
  Owned() = default;
  Owned(Owned&&) noexcept = default;
  Owned& operator=(Owned&&) noexcept = default;
  /// The owner passes the whole tensor, the others an empty one. \throws Error argument otherwise
  Owned(Communicator& group, Tensor whole_or_nothing, Shape global, int owner,
        SourceLine where = SourceLine::current());
  /// A tensor that this device owns. The other devices need not make an Owned for it.
  static Owned mine(Communicator& group, Tensor whole);
  /// \throws Error argument on any device but the owner.
  const Tensor& local(SourceLine where = SourceLine::current()) const&;
  Tensor local(SourceLine where = SourceLine::current()) && {
    static_cast<const Owned&>(*this).local(where);
    return std::move(local_);
  }
  Tensor& parameter() { return local_; }  ///< for updates in place
  int owner() const { return owner_; }
  bool is_mine(SourceLine where = SourceLine::current()) const { return owner_ == group(where).device_id(); }
#include "engine/layouts/refused/owned.inc"

 private:
  friend struct detail::Access;
  int owner_ = 0;
};

namespace detail {

/// Gives the functions below access to the local tensors of all layouts, also of a Partial. Their result
/// types say whether the result is still an addend.
struct Access {
  template <class L>
  static const Tensor& tensor(const L& laid) {
    return laid.local_;
  }
  template <class L>
  static Operand operand(const L& laid, bool is_transposed) {
    if constexpr (std::same_as<L, ReplicatedFactor>)
      return {laid.local_, is_transposed, laid.is_in_bf16_ ? laid.global_[1] : 0};
    return {laid.local_, is_transposed};
  }
  template <class L>
  static Tensor take(L&& laid) {
    return std::move(laid.local_);
  }
  /// The index at which the local part begins, or the owner; 0 for layouts that have neither.
  template <class L>
  static Index place(const L& laid) {
    if constexpr (Slice<L>) return laid.offset_;
    if constexpr (std::same_as<L, Owned>) return laid.owner_;
    return 0;
  }
  template <class L>
  static L make(Communicator& group, Tensor local, Shape global, Index place) {
    L laid;
    laid.group_ = &group;
    laid.local_ = std::move(local);
    laid.global_ = std::move(global);
    if constexpr (Slice<L>) laid.offset_ = place;
    if constexpr (std::same_as<L, Owned>) laid.owner_ = static_cast<int>(place);
    note(laid);
    return laid;
  }
};

/// The letter of a layout over one group.
template <class L>
std::string letter() {
  if constexpr (axis_of<L> >= 0) return letter_of_slice<L> + std::to_string(axis_of<L>);
  if constexpr (std::same_as<L, Partial>) return "P";
  if constexpr (std::same_as<L, Owned>) return "O";
  return "R";
}
/// Tells observers how a tensor lies over one group. `part`: this device's, along `axis` from `place` on.
void note_over_group(const LayoutBase& laid, const Tensor& local, const std::string& letter, int axis,
                     Index place);

template <class L>
void note(const L& laid) {
  if (!is_observed()) return;
  if constexpr (requires { laid.note_letters(); })
    laid.note_letters();
  else
    note_over_group(laid, Access::tensor(laid), letter<L>(), axis_of<L>, Access::place(laid));
}

}  // namespace detail

template <class L>
concept Layout = std::derived_from<std::remove_cvref_t<L>, detail::LayoutBase>;

/// \name What no compiler checks
/// For engines that make their own collectives of plain tensors.
/// @{

/// The tensor that this device holds: the whole, a slice, or an addend, which alone has no meaning.
template <Layout L>
const Tensor& held(const L& x) {
  return detail::Access::tensor(x);
}
template <Layout L>
requires(!std::is_lvalue_reference_v<L>) Tensor held(L&& x) {
  return detail::Access::take(std::move(x));
}
/// The index at which this device's slice begins, or the owner; 0 for other layouts.
template <Layout L>
Index place_of(const L& x) {
  return detail::Access::place(x);
}
/// A tensor in this layout, for what a device knows: no other device verifies it.
template <Layout L>
L laid(Communicator& group, Tensor local, Shape global, Index place = 0) {
  return detail::Access::make<L>(group, std::move(local), std::move(global), place);
}
/// @}

#include "engine/layouts/refused/no_layout.inc"

}  // namespace shard
