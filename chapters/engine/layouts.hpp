#pragma once

/// How a tensor lies on the devices, as a type. Products and elementwise functions know which layouts they
/// keep; collectives (sharded_engine.hpp) are the only way from one layout to another. What would be a wrong
/// sum at run time does not compile.
///
///     Replicated     the whole, the same on every device
///     Sharded<Axis>  my slice along Axis
///     Partial        my addend: the sum over the devices is the tensor
///     Owned          the whole, on one device; absent elsewhere
/// What leaves an engine is a Placed (placed.hpp), which can be made of any of them but a Partial.
///
/// All move and none copies: beside the tensor there are only a shape and an offset. (Each says so itself,
/// and not only its Tensor, so that a copy is one error and no chain of them.)
/// A layout knows the group of devices that it lies on. Operands of one function lie on one group; what enters
/// from outside says whose it is: `Replicated x(group, std::move(input))`.

#include <concepts>
#include <type_traits>

#include "engine/device/device.hpp"

namespace shard {

namespace detail {

struct Access;

/// What every layout has: its group, what this device holds, and the shape of the whole.
class Laid {
 public:
  /// \throws Error argument when this was made without a tensor.
  Communicator& group() const;
  const Shape& global_shape() const { return global_; }
  /// Whether this was made without a tensor, or is of size 0.
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
/// \throws Error argument unless both lie on the same devices in the same order.
void require_same_group(const char* call, const Laid& a, const Laid& b);
/// What a collective returned, against what its layout says. \throws Error internal
void require_result(const char* call, const Shape& expected, const Shape& given);
/// The shape of this device's part of a tensor cut along `axis` over the group, by the rule of split.hpp.
Shape my_part_of(const Communicator& group, Shape global, int axis);

}  // namespace detail

/// The whole tensor, the same on every device.
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

/// My slice along `Axis`.
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
  /// Where my slice begins along Axis.
  Index offset() const { return offset_; }

 private:
  friend struct detail::Access;
  Index offset_ = 0;
};

/// My addend of a sum over the devices. Has no local(): on its own it means nothing.
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
  /// The owner passes the whole, the others an empty tensor. \throws Error argument otherwise
  Owned(Communicator& group, Tensor whole_or_nothing, Shape global, int owner);
  /// A tensor that only this device knows of.
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

/// Reaches into layouts for the functions below, which know what they do to the sum.
struct Access {
  template <class L>
  static const Tensor& tensor(const L& laid) {
    return laid.local_;
  }
  template <class L>
  static Tensor take(L&& laid) {
    return std::move(laid.local_);
  }
  /// Where the local part begins, or who owns it; 0 for layouts without either.
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

/// A matrix read transposed by a product; axes 0 and 1 change places.
template <Layout L>
struct Transposed {
  const L& matrix;
};
template <Layout L>
Transposed<L> transposed(const L& matrix) {
  return {matrix};
}

namespace detail {

/// The layout a product sees.
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

/// Which products exist without communication, and how their result lies.
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

/// Matrix product of layouts; `transposed(x)` on either side. The local tensors are multiplied and the type
/// says how the results lie: R·R=R, S0·R=S0, R·S1=S1, S1·S0=P, P·R=P, R·P=P, O·O=O.
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

/// The result of an elementwise function: a new local tensor where the old one lay.
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

/// max(z, 0). An rvalue's memory is reused.
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
    return std::move(dh);  // refused above, and once is enough
  else
    return detail::combine(
        "relu_backward", [](Tensor&& d, const Tensor& t) { return relu_backward(std::move(d), t); },
        std::move(dh), z);
}

/// a + b in the memory of a. Two addends of a sum give an addend of the sum.
template <Layout A, Layout B>
requires(!std::is_lvalue_reference_v<A>) A operator+(A&& a, const B& b) {
  return detail::combine(
      "operator+", [](Tensor&& x, const Tensor& y) { return add(std::move(x), y); }, std::move(a), b);
}

/// a * factor in the memory of a; linear, so also of a Partial.
template <Layout L>
requires(!std::is_lvalue_reference_v<L>) L scale(L&& a, float factor) {
  return detail::relaid<L>(scale(detail::Access::take(std::move(a)), factor), a);
}

/// sum += addend, in the memory of the sum; the first addend, of an empty sum, becomes the sum.
template <Layout L>
void accumulate(L& sum, L addend) {
  sum = sum.is_empty() ? std::move(addend) : std::move(sum) + addend;
}
/// @}

/// Several addends as one, their elements in a row: a reduction of it reduces them all (a bucket).
Partial pack(std::vector<Partial>&& addends);
/// The reverse, after the reduction: tensors of these shapes.
std::vector<Replicated> unpack(Replicated&& row, const std::vector<Shape>& shapes);

}  // namespace shard
