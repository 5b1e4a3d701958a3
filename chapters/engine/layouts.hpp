#pragma once

/// Layouts: types that say how a tensor is divided over the devices. A product or an elementwise function has
/// a result type for each layout of its operands. Only collectives (sharded_engine.hpp) turn one layout into
/// another. A mistake that would give a wrong sum at run time therefore does not compile.
///
///     Replicated     every device holds the whole tensor, the same on all
///     Sharded<Axis>  every device holds a slice along Axis
///     Partial        every device holds an addend: the sum over the devices is the tensor
///     Owned          one device holds the whole tensor, the others nothing
/// An engine returns its output as a Placed (placed.hpp). Any layout but a Partial can become one.
///
/// Layouts can be moved and not copied. Beside the tensor, they hold only shapes and an offset. (Each class
/// declares this itself, so that the compiler answers a copy with one error and not a chain of them.)
/// A layout knows the group of devices that holds it, and the operands of a function belong to one group. A
/// tensor that enters from outside is given its group: `Replicated x(group, std::move(input))`.

#include <concepts>
#include <type_traits>

#include "engine/device/device.hpp"

namespace shard {

namespace detail {

struct Access;

/// The part that all layouts share: the group, the tensor that this device holds, and the shape of the whole.
class Laid {
 public:
  /// \throws Error argument when this layout was made without a tensor.
  Communicator& group() const;
  const Shape& global_shape() const { return global_; }
  /// Whether this layout was made without a tensor, or its tensor has no elements.
  bool is_empty() const { return num_elements(global_) == 0; }

 protected:
  friend struct Access;
  Laid() = default;
  Laid(Communicator& group, Tensor local, Shape global)
      : group_(&group), local_(std::move(local)), global_(std::move(global)) {}

  Communicator* group_ = nullptr;
  Tensor local_;
  Shape global_{0};
};

/// \throws Error argument unless `local` is rows [offset, offset + extent) of `global` along `axis`.
void require_slice(const Shape& local, const Shape& global, int axis, Index offset);
/// \throws Error argument unless both operands are cut at the same places.
void require_same_cut(const char* call, const Shape& a, Index a_offset, const Shape& b, Index b_offset);
void require_same_owner(const char* call, const Laid& a, int a_owner, int b_owner);
/// \throws Error argument unless both groups have the same devices in the same order.
void require_same_group(const char* call, const Laid& a, const Laid& b);
/// Compares what a collective returned with what its layout says. \throws Error internal when they differ
void require_result(const char* call, const Shape& expected, const Shape& given);
/// The shape of this device's part of a tensor cut along `axis` over the group, by the rule of split.hpp.
Shape my_part_of(const Communicator& group, Shape global, int axis);

}  // namespace detail

/// Every device holds the whole tensor, and all hold the same values.
class Replicated : public detail::Laid {
 public:
  Replicated() = default;
  Replicated(Replicated&&) noexcept = default;
  Replicated& operator=(Replicated&&) noexcept = default;
  /// Claims that every device passes the same values; a checked run verifies it (Error mismatch).
  Replicated(Communicator& group, Tensor whole);
  const Tensor& local() const& { return local_; }
  Tensor local() && { return std::move(local_); }
  Tensor& parameter() { return local_; }  ///< for updates in place
};

/// Every device holds a slice along `Axis`.
template <int Axis>
class Sharded : public detail::Laid {
 public:
  static_assert(Axis >= 0, "Sharded<Axis>: an axis is counted from 0");
  Sharded() = default;
  Sharded(Sharded&&) noexcept = default;
  Sharded& operator=(Sharded&&) noexcept = default;
  /// Claims that `slice` starts at `offset` along Axis of a tensor of shape `global`.
  Sharded(Communicator& group, Tensor slice, Shape global, Index offset)
      : Laid(group, std::move(slice), std::move(global)), offset_(offset) {
    detail::require_slice(local_.shape(), global_, Axis, offset_);
  }
  const Tensor& local() const& { return local_; }
  Tensor local() && { return std::move(local_); }
  Tensor& parameter() { return local_; }  ///< for updates in place
  /// The index along Axis at which this device's slice begins.
  Index offset() const { return offset_; }

 private:
  friend struct detail::Access;
  Index offset_ = 0;
};

/// Every device holds an addend, and the tensor is the sum of all addends. An addend alone has no meaning, so
/// this class has no local().
class Partial : public detail::Laid {
 public:
  Partial() = default;
  Partial(Partial&&) noexcept = default;
  Partial& operator=(Partial&&) noexcept = default;
  Partial(Communicator& group, Tensor addend);
};

/// The whole tensor on device `owner` of the group; other devices hold nothing.
class Owned : public detail::Laid {
 public:
  Owned() = default;
  Owned(Owned&&) noexcept = default;
  Owned& operator=(Owned&&) noexcept = default;
  /// The owner passes the whole tensor, the others an empty one. \throws Error argument otherwise
  Owned(Communicator& group, Tensor whole_or_nothing, Shape global, int owner);
  /// A tensor that this device owns. The other devices need not make an Owned for it.
  static Owned mine(Communicator& group, Tensor whole);
  /// \throws Error argument on any device but the owner.
  const Tensor& local() const&;
  Tensor local() && { return local(), std::move(local_); }
  Tensor& parameter() { return local_; }  ///< for updates in place
  int owner() const { return owner_; }
  bool is_mine() const { return owner_ == group().device_id(); }

 private:
  friend struct detail::Access;
  int owner_ = 0;
};

namespace detail {

template <class L>
struct IsSharded : std::false_type {};
template <int Axis>
struct IsSharded<Sharded<Axis>> : std::true_type {
  static constexpr int axis = Axis;
};

/// Gives the functions below access to the local tensors of all layouts, also of a Partial. They state in
/// their result type what they do to the sum.
struct Access {
  template <class L>
  static const Tensor& tensor(const L& laid) {
    return laid.local_;
  }
  template <class L>
  static Tensor take(L&& laid) {
    return std::move(laid.local_);
  }
  /// The index at which the local part begins, or the owner; 0 for layouts that have neither.
  template <class L>
  static Index place(const L& laid) {
    if constexpr (IsSharded<L>::value) return laid.offset_;
    if constexpr (std::same_as<L, Owned>) return laid.owner_;
    return 0;
  }
  template <class L>
  static L make(Communicator& group, Tensor local, Shape global, Index place) {
    L laid;
    laid.group_ = &group;
    laid.local_ = std::move(local);
    laid.global_ = std::move(global);
    if constexpr (IsSharded<L>::value) laid.offset_ = place;
    if constexpr (std::same_as<L, Owned>) laid.owner_ = static_cast<int>(place);
    return laid;
  }
};

template <class L>
inline constexpr bool always_false = false;

}  // namespace detail

template <class L>
concept Layout = std::derived_from<std::remove_cvref_t<L>, detail::Laid>;

/// \name Products
/// @{

/// A matrix that a product reads transposed: axes 0 and 1 change places.
template <Layout L>
struct Transposed {
  const L& matrix;
};
template <Layout L>
Transposed<L> transposed(const L& matrix) {
  return {matrix};
}

namespace detail {

/// The layout of an operand as the product reads it.
template <class L>
struct Seen {
  using type = L;
};
template <class L>
struct Seen<Transposed<L>> {
  using type = L;
};
template <>
struct Seen<Transposed<Sharded<0>>> {
  using type = Sharded<1>;
};
template <>
struct Seen<Transposed<Sharded<1>>> {
  using type = Sharded<0>;
};

/// The products that need no communication, with the layout of the result.
template <class A, class B>
struct Product {
  static constexpr bool legal = false;
  using type = Replicated;
};
template <class Result>
struct Legal {
  static constexpr bool legal = true;
  using type = Result;
};
template <>
struct Product<Replicated, Replicated> : Legal<Replicated> {};
template <>
struct Product<Sharded<0>, Replicated> : Legal<Sharded<0>> {};
template <>
struct Product<Replicated, Sharded<1>> : Legal<Sharded<1>> {};
template <>
struct Product<Sharded<1>, Sharded<0>> : Legal<Partial> {};
template <>
struct Product<Partial, Replicated> : Legal<Partial> {};
template <>
struct Product<Replicated, Partial> : Legal<Partial> {};
template <>
struct Product<Owned, Owned> : Legal<Owned> {};

template <Layout L>
const L& matrix_of(const L& matrix) {
  return matrix;
}
template <Layout L>
const L& matrix_of(const Transposed<L>& t) {
  return t.matrix;
}
template <class L>
inline constexpr bool is_transposed = false;
template <class L>
inline constexpr bool is_transposed<Transposed<L>> = true;

template <class L>
concept Factor = Layout<L> || is_transposed<L>;

/// \throws Error argument unless both global shapes are matrices that fit.
Shape product_shape(const Shape& a, bool a_transposed, const Shape& b, bool b_transposed);

}  // namespace detail

/// The matrix product of two layouts, each as it is or `transposed(x)`. Every device multiplies its local
/// tensors, and the result type is R·R=R, S0·R=S0, R·S1=S1, S1·S0=P, P·R=P, R·P=P, O·O=O.
/// \throws Error argument when shapes do not fit or S1·S0 are cut at different places.
template <detail::Factor A, detail::Factor B>
auto matmul(const A& a, const B& b) {
  using Rule = detail::Product<typename detail::Seen<A>::type, typename detail::Seen<B>::type>;
  static_assert(
      Rule::legal,
      "matmul: these layouts have no product without communication (legal are R·R, S0·R, R·S1, S1·S0, "
      "P·R, R·P and O·O of one owner): gather, reduce or re-shard an operand first");
  using Result = typename Rule::type;
  if constexpr (Rule::legal) {
    const auto& x = detail::matrix_of(a);
    const auto& y = detail::matrix_of(b);
    constexpr bool tx = detail::is_transposed<A>;
    constexpr bool ty = detail::is_transposed<B>;
    const Tensor& x_local = detail::Access::tensor(x);
    const Tensor& y_local = detail::Access::tensor(y);
    Index x_place = detail::Access::place(x);
    Index y_place = detail::Access::place(y);
    Shape global = detail::product_shape(x.global_shape(), tx, y.global_shape(), ty);
    detail::require_same_group("matmul", x, y);
    if constexpr (std::same_as<Result, Owned>) {
      detail::require_same_owner("matmul", x, x.owner(), y.owner());
      if (!x.is_mine()) return detail::Access::make<Owned>(x.group(), Tensor(), std::move(global), x_place);
    }
    if constexpr (std::same_as<Result, Partial> && detail::IsSharded<std::remove_cvref_t<decltype(x)>>::value)
      detail::require_same_cut("matmul", {x_local.extent(tx ? 0 : 1)}, x_place, {y_local.extent(ty ? 1 : 0)},
                               y_place);
    Tensor local = matmul(Operand(x_local, tx), Operand(y_local, ty));
    return detail::Access::make<Result>(x.group(), std::move(local), std::move(global),
                                        std::same_as<Result, Sharded<1>> ? y_place : x_place);
  } else {
    return Result();
  }
}
/// @}

/// \name Elementwise functions: they keep the layout
/// @{

namespace detail {

template <class L>
constexpr void refuse_nonlinear() {
  static_assert(!std::same_as<L, Partial>,
                "this function is not linear: f(a) + f(b) is not f(a + b), so reduce the Partial first "
                "(all_reduce or reduce_scatter)");
}

template <class A, class B>
constexpr void require_same_layout() {
  static_assert(
      std::same_as<A, B> || !(std::same_as<A, Partial> || std::same_as<B, Partial>),
      "a Partial and a reduced tensor cannot be added: the reduced one would count once per device, so "
      "reduce the Partial first (all_reduce or reduce_scatter)");
  static_assert(std::same_as<A, B> || std::same_as<A, Partial> || std::same_as<B, Partial>,
                "elementwise functions take operands of one layout: gather or shard one of them first");
}

/// The result of an elementwise function: a new local tensor in the layout of the old one.
template <class L>
L relaid(Tensor local, const L& like) {
  return Access::make<L>(like.group(), std::move(local), like.global_shape(), Access::place(like));
}

template <class F, class A, class B>
A combine(const char* call, F function, A&& a, const B& b) {
  require_same_layout<A, B>();
  if constexpr (std::same_as<A, B>) {
    require_same_group(call, a, b);
    require_same_cut(call, Access::tensor(a).shape(), Access::place(a), Access::tensor(b).shape(),
                     Access::place(b));
    Tensor local = function(Access::take(std::move(a)), Access::tensor(b));
    return relaid<A>(std::move(local), a);
  } else {
    return std::move(a);
  }
}

}  // namespace detail

/// max(z, 0). Reuses the memory of an rvalue.
template <Layout L>
auto relu(L&& z) {
  using Value = std::remove_cvref_t<L>;
  detail::refuse_nonlinear<Value>();
  if constexpr (std::is_lvalue_reference_v<L>)
    return detail::relaid<Value>(relu(detail::Access::tensor(z)), z);
  else
    return detail::relaid<Value>(relu(detail::Access::take(std::move(z))), z);
}

/// dz = dh where z > 0, else 0, in the memory of dh. z may be ReLU's argument or its result.
template <Layout L, Layout Z>
requires(!std::is_lvalue_reference_v<L>) L relu_backward(L&& dh, const Z& z) {
  detail::refuse_nonlinear<L>();
  detail::refuse_nonlinear<Z>();
  if constexpr (std::same_as<L, Partial> || std::same_as<Z, Partial>)
    return std::move(dh);  // the assertion above has failed; this avoids further errors
  else
    return detail::combine(
        "relu_backward", [](Tensor&& d, const Tensor& t) { return relu_backward(std::move(d), t); },
        std::move(dh), z);
}

/// a + b in the memory of a. The sum of two Partials is a Partial.
template <Layout A, Layout B>
requires(!std::is_lvalue_reference_v<A>) A operator+(A&& a, const B& b) {
  return detail::combine(
      "operator+", [](Tensor&& x, const Tensor& y) { return add(std::move(x), y); }, std::move(a), b);
}

/// a * factor in the memory of a. It is linear, so it also exists for a Partial.
template <Layout L>
requires(!std::is_lvalue_reference_v<L>) L scale(L&& a, float factor) {
  return detail::relaid<L>(scale(detail::Access::take(std::move(a)), factor), a);
}

/// sum += addend, in the memory of the sum. If the sum is empty, the addend becomes the sum.
template <Layout L>
void accumulate(L& sum, L addend) {
  sum = sum.is_empty() ? std::move(addend) : std::move(sum) + addend;
}
/// @}

/// Joins the elements of several Partials in one, a bucket, so that one reduction reduces them all.
Partial pack(std::vector<Partial>&& addends);
/// The reverse, after the reduction: cuts the bucket into tensors of these shapes.
std::vector<Replicated> unpack(Replicated&& row, const std::vector<Shape>& shapes);

}  // namespace shard
