#pragma once

/// A tensor on a mesh has one letter for each axis: how it lies over the devices that differ on that axis
/// only. The rules of layouts.hpp hold on each axis by itself. A product is legal where it is legal on every
/// axis, and it is one local product. An engine fixes the axes:
///
///     struct data { static constexpr const char* name = "data"; };
///     struct tensor { static constexpr const char* name = "tensor"; };
///     using Grid = MeshAxes<data, tensor>;
///
///     OnMesh<Grid, S<0>, R> x;               // my rows over data; the same on all devices along tensor
///     OnMesh<Grid, R, S<1>> w;               // the same over data; my columns over tensor
///     OnMesh<Grid, S<0>, S<1>> z = matmul(x, w);    // S0·R = S0 over data, R·S1 = S1 over tensor
///
/// If two axes cut one dimension, the cut is nested, and the axis that the engine names first is the outer
/// one (mesh.hpp). Collectives name their axis: mesh_engine.hpp.

#include <string>
#include <tuple>

#include "engine/layouts/layouts.hpp"
#include "engine/layouts/mesh.hpp"

namespace shard {

/// A letter: a slice along a dimension, like S, but of whole pieces, such as heads or sequences.
/// Mesh::keep_whole says how many pieces there are.
template <int Dimension>
class OfWholePieces : public detail::LayoutBase {};
template <int Dimension>
inline constexpr int axis_of<OfWholePieces<Dimension>> = Dimension;

namespace detail {

template <int Dimension>
inline constexpr const char* letter_of_slice<OfWholePieces<Dimension>> = "W";
template <class L>
inline constexpr bool keeps_pieces = false;
template <int Dimension>
inline constexpr bool keeps_pieces<OfWholePieces<Dimension>> = true;

template <int Dimension>
struct ReadAs<Transposed<OfWholePieces<Dimension>>> {
  using type = OfWholePieces<1 - Dimension>;
};
OfWholePieces<0> product_of(OfWholePieces<0>&, Replicated&);
OfWholePieces<1> product_of(Replicated&, OfWholePieces<1>&);
Partial product_of(OfWholePieces<1>&, OfWholePieces<0>&);

}  // namespace detail

/// The names of the letters of an axis: the layouts of a tensor over one group.
namespace letters {
using R = Replicated;
template <int Dimension>
using S = Sharded<Dimension>;
template <int Dimension>
using W = OfWholePieces<Dimension>;
using P = Partial;
using O = Owned;  // at one place of the axis, or of all axes with O together; nothing elsewhere
}  // namespace letters

/// The axes that an engine knows, the outer ones first. Each is a type with a `name`.
template <class... Axis>
struct MeshAxes {
  static std::vector<std::string> names() { return {Axis::name...}; }
  template <class A>
  static constexpr bool has = (std::same_as<A, Axis> || ...);
};

namespace detail {

template <class L>
concept Letter =
    std::same_as<L, Replicated> || Slice<L> || std::same_as<L, Partial> || std::same_as<L, Owned>;

/// The cut that a letter makes over the group of its axis.
template <Letter L>
void add_cut(std::vector<MeshCut>& cuts, const Mesh& mesh, const std::string& axis) {
  if constexpr (Slice<L>)
    cuts.push_back({axis_of<L>, &mesh.axis(axis), keeps_pieces<L> ? mesh.pieces(axis) : 0});
}
/// Tells observers how a tensor on a mesh lies.
void note_on_mesh(const LayoutBase& laid, const Tensor& local, std::vector<std::string> axes,
                  std::vector<std::string> letters, const std::vector<MeshCut>& cuts);
template <Letter L>
void verify_copies(Communicator& axis, const Tensor& t) {
  if constexpr (std::same_as<L, Replicated>) axis.verify_replicated(t);
}

}  // namespace detail

/// A tensor on a mesh, with one letter for each axis.
template <class... Axis, detail::Letter... Letters>
class OnMesh<MeshAxes<Axis...>, Letters...> : public detail::LayoutBase {
  static_assert(sizeof...(Axis) == sizeof...(Letters), "OnMesh has one letter for each axis of its mesh");

 public:
  using Axes = MeshAxes<Axis...>;
  OnMesh() = default;
  OnMesh(OnMesh&&) noexcept = default;
  OnMesh& operator=(OnMesh&&) noexcept = default;
  /// Claims that `local` is this device's part of a tensor of shape `global`. On an axis with R all devices
  /// pass the same values; a checked run verifies it. \throws Error argument for a part of another shape
  OnMesh(Mesh& mesh, Tensor local, Shape global, SourceLine where = SourceLine::current())
      : OnMesh(uneven(mesh, std::move(local), std::move(global), where)) {
    const CallSite call(where);
    detail::require_part(local_.shape(), ranges(), global_);
  }
  /// A tensor whose parts follow no rule of cuts: the tokens that chose an expert, or some positions of some
  /// sequences. It cannot leave an engine.
  static OnMesh uneven(Mesh& mesh, Tensor local, Shape global, SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    OnMesh claimed = detail::Access::make<OnMesh>(mesh, std::move(local), std::move(global), 0);
    (detail::verify_copies<Letters>(mesh.axis(Axis::name), claimed.local_), ...);
    return claimed;
  }
  /// A tensor that lies at another place, `owner`, of the axes with O. This device holds nothing of it.
  static OnMesh elsewhere(Mesh& mesh, Shape global, int owner) requires(std::same_as<Letters, Owned> || ...) {
    OnMesh nothing;
    nothing.group_ = &mesh;
    nothing.global_ = std::move(global);
    nothing.elsewhere_ = owner;
    return nothing;
  }
  const Tensor& local() const& requires(!detail::is_unreduced<OnMesh>) { return local_; }
  Tensor local() && requires(!detail::is_unreduced<OnMesh>) { return std::move(local_); }
  Tensor& parameter() { return local_; }  ///< for updates in place
  Mesh& mesh() const { return static_cast<Mesh&>(group()); }
  /// The cuts that the letters make on this mesh, the outer ones first.
  static std::vector<MeshCut> cuts(const Mesh& mesh) {
    std::vector<MeshCut> all;
    (detail::add_cut<Letters>(all, mesh, Axis::name), ...);
    return all;
  }
  /// The group along the axes with O, or null. Several such axes must have been joined before (Mesh::axes).
  static Communicator* owned_along(const Mesh& mesh) {
    static const std::vector<std::string> owning = [] {
      std::vector<std::string> names;
      ((std::same_as<Letters, Owned> ? names.push_back(Axis::name) : void()), ...);
      return names;
    }();
    return owning.empty() ? nullptr : &mesh.joined(owning);
  }
  /// The place in that group where the tensor lies.
  int owner() const { return elsewhere_ >= 0 ? elsewhere_ : owned_along(mesh())->device_id(); }
  /// Whether this device holds a part.
  bool is_mine() const {
    if constexpr ((std::same_as<Letters, Owned> || ...))
      return elsewhere_ < 0 || elsewhere_ == owned_along(mesh())->device_id();
    return true;
  }
  /// The indices of the whole tensor that this device has.
  std::vector<Range> ranges() const { return ranges_after(cuts(mesh()), global_); }
  /// Tells observers how the tensor lies.
  void note_letters() const {
    detail::note_on_mesh(*this, local_, Axes::names(), {detail::letter<Letters>()...}, cuts(mesh()));
  }
  /// Whether this device is the first of those that hold the same elements.
  bool is_first_copy() const {
    return ((!std::same_as<Letters, Replicated> || mesh().place(Axis::name) == 0) && ...);
  }
#include "engine/layouts/refused/on_mesh.inc"

 private:
  friend struct detail::Access;
  int elsewhere_ = -1;  // the place of the tensor if this device does not hold it, else -1
};

namespace detail {

/// A transposed operand is read letter by letter.
template <class Axes, class... L>
struct ReadAs<Transposed<OnMesh<Axes, L...>>> {
  using type = OnMesh<Axes, typename ReadAs<Transposed<L>>::type...>;
};

template <bool legal, class Axes, class A, class B>
struct MeshProduct : Product<NoLayout, NoLayout> {};
template <class Axes, class... A, class... B>
struct MeshProduct<true, Axes, std::tuple<A...>, std::tuple<B...>>
    : Legal<OnMesh<Axes, typename Product<A, B>::type...>> {};
/// A product is legal where it is legal on every axis.
template <class Axes, class... A, class... B>
struct Product<OnMesh<Axes, A...>, OnMesh<Axes, B...>>
    : MeshProduct<(Product<A, B>::legal && ...), Axes, std::tuple<A...>, std::tuple<B...>> {};

template <class L>
inline constexpr bool is_on_mesh = false;
template <class Axes, class... L>
inline constexpr bool is_on_mesh<OnMesh<Axes, L...>> = true;
template <class L>
concept LiesOnMesh = is_on_mesh<std::remove_cvref_t<L>>;

/// The letter of a tensor on an axis.
template <class L, class A>
struct LetterOn;
template <class... Axis, class... L, class A>
struct LetterOn<OnMesh<MeshAxes<Axis...>, L...>, A> {
  template <class X, class Letter>
  using IfHere = std::conditional_t<std::same_as<X, A>, std::tuple<Letter>, std::tuple<>>;
  using type = std::tuple_element_t<0, decltype(std::tuple_cat(std::declval<IfHere<Axis, L>>()...))>;
};
template <class L, class A>
using letter_on = typename LetterOn<std::remove_cvref_t<L>, A>::type;

/// The same tensor with another letter on some axes.
template <class L, class Letter, class... A>
struct Relettered;
template <class... Axis, class... L, class Letter, class... A>
struct Relettered<OnMesh<MeshAxes<Axis...>, L...>, Letter, A...> {
  using type =
      OnMesh<MeshAxes<Axis...>, std::conditional_t<MeshAxes<A...>::template has<Axis>, Letter, L>...>;
};
template <class L, class Letter, class... A>
using with_letter_on = typename Relettered<std::remove_cvref_t<L>, Letter, A...>::type;

/// Whether no axis after this one cuts the same dimension.
template <class L, class A, int Dimension>
struct Innermost;
template <class... Axis, class... L, class A, int Dimension>
struct Innermost<OnMesh<MeshAxes<Axis...>, L...>, A, Dimension> {
  static constexpr bool value = [] {
    bool is_after = false, is_cut_after = false;
    ((is_cut_after = is_cut_after || (is_after && axis_of<L> == Dimension),
      is_after = is_after || std::same_as<Axis, A>),
     ...);
    return !is_cut_after;
  }();
};
template <class L, class A, int Dimension>
inline constexpr bool is_innermost = Innermost<std::remove_cvref_t<L>, A, Dimension>::value;

}  // namespace detail

/// The layout with another letter on an axis.
template <class L, class A, class Letter>
using with_letter = typename detail::Relettered<std::remove_cvref_t<L>, Letter, A>::type;

#include "engine/layouts/refused/mesh_products.inc"

}  // namespace shard
