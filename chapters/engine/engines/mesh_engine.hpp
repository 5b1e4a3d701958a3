#pragma once

/// The base class of engines on a mesh. Each collective names the axis over which it runs, and changes the
/// letter of that axis:
///
///     all_reduce<axis>                P → R, also over several axes at once: all_reduce<axis, other>
///     reduce_scatter<axis, d>         P → S<d>
///     all_gather<axis>                S<d> → R
///     shard<axis, d>                  R → S<d>, without communication
///     all_to_all<axis, from, to>      S<from> → S<to>
/// If two axes cut one dimension, the outer one is cut first, and the inner one is gathered first.

#include <numeric>

#include "engine/engines/sharded_engine.hpp"
#include "engine/layouts/on_mesh.hpp"

namespace shard {

namespace detail {

/// The result of a collective over an axis: a tensor with another letter on that axis.
template <class Result>
Result on_mesh(const char* call, Mesh& mesh, Tensor local, Shape global) {
  require_result(call, shape_after(Result::cuts(mesh), global), local.shape());
  return Access::make<Result>(mesh, std::move(local), std::move(global), 0);
}

/// The sum over a group of a mesh. Each device keeps its part of the tensor.
template <class Result, class L>
auto summed(Communicator& over, L&& p) {
  const Shape mine = Access::tensor(p).shape();
  return over.all_reduce_async(Access::take(std::move(p)), ReduceOp::sum)
      .then([&mesh = p.mesh(), global = p.global_shape(), mine](Tensor sum) {
        require_result("all_reduce", mine, sum.shape());
        return Access::make<Result>(mesh, std::move(sum), global, 0);
      });
}

template <class L, class Axis>
concept AxisOf = LiesOnMesh<L> && std::remove_cvref_t<L>::Axes::template has<Axis>;
template <class L, class Axis>
concept CutOn = AxisOf<L, Axis> && Slice<letter_on<L, Axis>>;
/// Whether an axis cuts a tensor, and no inner axis cuts the same dimension.
template <class L, class Axis>
concept CutInside = CutOn<L, Axis> && is_innermost<L, Axis, axis_of<letter_on<L, Axis>>>;
/// Whether an axis may cut a dimension: no inner axis does so already.
template <class L, class Axis, int Dimension>
concept CanCut = AxisOf<L, Axis> && is_innermost<L, Axis, Dimension>;
template <class L>
concept Consumed = !std::is_lvalue_reference_v<L>;

}  // namespace detail

/// Whether a tensor has this letter on an axis.
template <class L, class Axis, class Letter>
concept HasLetter = detail::AxisOf<L, Axis> && std::same_as<detail::letter_on<L, Axis>, Letter>;

/// Base is the class that engines of the workload derive from, such as LanguageModel.
template <class Axes, std::derived_from<ShardedEngine> Base = ShardedEngine>
class MeshEngine : public Base {
 public:
  /// A collective. \throws Error usage unless the shape has the group's number of devices
  MeshEngine(Communicator& group, const MeshShape& shape) : Base(group), mesh_(group, shape) {}

  Mesh& mesh() { return mesh_; }
  const Mesh* on_mesh() const override { return &mesh_; }

  /// \name Collectives over an axis
  /// Reductions are sums. They consume their argument.
  /// @{
  using Base::all_gather, Base::all_gather_async, Base::all_reduce, Base::all_reduce_async, Base::all_to_all,
      Base::reduce_scatter, Base::reduce_scatter_async, Base::shard;

  template <class Axis, HasLetter<Axis, Partial> L>
  requires detail::Consumed<L>
  auto all_reduce_async(L&& p, SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    Mesh& mesh = p.mesh();
    return detail::summed<with_letter<L, Axis, Replicated>>(mesh.axis(Axis::name), std::move(p));
  }
  template <class First, class Second, class... More, class L>
  requires(detail::Consumed<L>&& HasLetter<L, First, Partial>&& HasLetter<L, Second, Partial> &&
           (HasLetter<L, More, Partial> && ...)) auto all_reduce(L&& p,
                                                                 SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    using Result = detail::with_letter_on<L, Replicated, First, Second, More...>;
    Mesh& mesh = p.mesh();
    return detail::summed<Result>(mesh.axes({First::name, Second::name, More::name...}), std::move(p))
        .get(where);
  }
  template <class Axis, HasLetter<Axis, Partial> L>
  requires detail::Consumed<L>
  auto all_reduce(L&& p, SourceLine where = SourceLine::current()) {
    return all_reduce_async<Axis>(std::move(p), where).get(where);
  }

  template <class Axis, int Dimension, HasLetter<Axis, Partial> L>
  requires(detail::Consumed<L>&& detail::CanCut<L, Axis, Dimension>) auto reduce_scatter_async(
      L&& p, SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    using Result = with_letter<L, Axis, Sharded<Dimension>>;
    Mesh& mesh = p.mesh();
    return mesh.axis(Axis::name)
        .reduce_scatter_async(detail::Access::take(std::move(p)), ReduceOp::sum, Dimension)
        .then([&mesh, global = p.global_shape()](Tensor mine) {
          return detail::on_mesh<Result>("reduce_scatter", mesh, std::move(mine), global);
        });
  }
  template <class Axis, int Dimension, HasLetter<Axis, Partial> L>
  requires(detail::Consumed<L>&& detail::CanCut<L, Axis, Dimension>) auto reduce_scatter(
      L&& p, SourceLine where = SourceLine::current()) {
    return reduce_scatter_async<Axis, Dimension>(std::move(p), where).get(where);
  }

  /// A slice that is needed again is given without std::move: this device keeps it.
  template <class Axis, detail::CutInside<Axis> L>
  auto all_gather_async(L&& s, SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    using Result = with_letter<L, Axis, Replicated>;
    constexpr int dimension = axis_of<detail::letter_on<L, Axis>>;
    Mesh& mesh = s.mesh();
    const Shape global = s.global_shape();
    const Shape gathered = shape_after(Result::cuts(mesh), global);
    Communicator& axis = mesh.axis(Axis::name);
    auto made = [&mesh, global](Tensor whole) {
      return detail::on_mesh<Result>("all_gather", mesh, std::move(whole), global);
    };
    if constexpr (detail::Consumed<L>)
      return axis.all_gather_async(detail::Access::take(std::move(s)), dimension, gathered).then(made);
    else
      return axis.all_gather_async(s.local(), dimension, gathered).then(made);
  }
  template <class Axis, detail::CutInside<Axis> L>
  auto all_gather(L&& s, SourceLine where = SourceLine::current()) {
    return all_gather_async<Axis>(std::forward<L>(s), where).get(where);
  }

  template <class Axis, int Dimension, HasLetter<Axis, Replicated> L>
  requires detail::CanCut<L, Axis, Dimension>
  auto shard(const L& r, SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    using Result = with_letter<L, Axis, Sharded<Dimension>>;
    const Tensor& t = detail::Access::tensor(r);
    const Range mine = part(t.extent(Dimension), r.mesh().size(Axis::name), r.mesh().place(Axis::name));
    return detail::on_mesh<Result>("shard", r.mesh(), slice(t, Dimension, mine.begin, mine.end),
                                   r.global_shape());
  }

  template <class Axis, int From, int To, HasLetter<Axis, Sharded<From>> L>
  requires(detail::Consumed<L>&& detail::CutInside<L, Axis>&& detail::CanCut<L, Axis, To>&& From !=
           To) auto all_to_all(L&& s, SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    using Result = with_letter<L, Axis, Sharded<To>>;
    Mesh& mesh = s.mesh();
    Tensor moved = mesh.axis(Axis::name).all_to_all_async(detail::Access::take(std::move(s)), To, From).get();
    return detail::on_mesh<Result>("all_to_all", mesh, std::move(moved), s.global_shape());
  }
  /// @}

#include "engine/layouts/refused/mesh_collectives.inc"

 protected:
  /// A tensor of this engine, with a letter for each axis.
  template <class... Letters>
  using On = OnMesh<Axes, Letters...>;

  /// This device's part of a tensor that enters from outside: the rows that `input_layout` says, or an
  /// output's gradient. The devices of each axis that cuts it tell each other its extents.
  template <class... Letters>
  On<Letters...> from_outside(Tensor part, SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    Shape global = part.shape();
    const std::vector<MeshCut> cuts = On<Letters...>::cuts(mesh_);
    for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
      Index& extent = global.at(static_cast<std::size_t>(cut->dimension));
      const std::vector<Index> extents = cut->over->exchange("extents of the input", extent);
      extent = std::accumulate(extents.begin(), extents.end(), Index{0});
    }
    return On<Letters...>(mesh_, std::move(part), std::move(global));
  }
  /// Loads this device's part of a parameter, and nothing else.
  template <class... Letters>
  On<Letters...> load(const Checkpoint& checkpoint, const std::string& name,
                      SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    const Shape global = checkpoint.shape(name);
    const std::vector<Range> mine = ranges_after(On<Letters...>::cuts(mesh_), global);
    return On<Letters...>(mesh_, checkpoint.slices(name, mine), global);
  }
  /// Loads a parameter that lies at the place `owner` of the axes with O. The devices at the other places
  /// load nothing.
  template <class... Letters>
  On<Letters...> load_at(int owner, const Checkpoint& checkpoint, const std::string& name,
                         SourceLine where = SourceLine::current()) {
    if (On<Letters...>::owned_along(mesh_)->device_id() == owner)
      return load<Letters...>(checkpoint, name, where);
    return On<Letters...>::elsewhere(mesh_, checkpoint.shape(name), owner);
  }
  /// The placement of an input with these letters: at the place `owner` of an axis with O.
  template <class... Letters>
  Placement placement(int owner = 0) const {
    return Placement::on_mesh(On<Letters...>::cuts(mesh_), On<Letters...>::owned_along(mesh_), owner);
  }

 private:
  Mesh mesh_;
};

}  // namespace shard
