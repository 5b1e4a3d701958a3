#pragma once

#include "engine/layouts/layouts.hpp"

namespace shard {

/// A layout as a value and not as a type. An engine describes its input with it, and a Placed contains one.
struct Placement {
  enum class Kind { replicated, sharded, owned, on_mesh };
  Kind kind = Kind::replicated;
  int axis = 0;                    ///< of a sharded tensor
  int owner = 0;                   ///< of an owned one, or the place `along` an axis
  std::vector<MeshCut> cuts = {};  ///< of a tensor on a mesh, the outer ones first
  Communicator* along = nullptr;   ///< of a tensor on a mesh that lies at one place of this axis only

  static Placement replicated() { return {}; }
  static Placement sharded(int axis) { return {Kind::sharded, axis, 0}; }
  static Placement owned(int device) { return {Kind::owned, 0, device}; }
  static Placement on_mesh(std::vector<MeshCut> cuts, Communicator* along = nullptr, int owner = 0) {
    return {Kind::on_mesh, 0, owner, std::move(cuts), along};
  }
  /// Whether this device of the tensor's group holds a part.
  bool is_here(const Communicator& group) const;
  bool operator==(const Placement&) const = default;
};

/// A result of an engine: the local tensor, its layout as a value, its group, and the shape of the whole.
class Placed {
 public:
  Placed(Placed&&) noexcept = default;
  Placed& operator=(Placed&&) noexcept = default;
  template <Layout L>
  requires(!Is<L, detail::NoLayout>)
      Placed(L&& laid,
             SourceLine where = SourceLine::current())  // implicit, so that an engine returns a layout
      : group_(&laid.group(where)), global_(laid.global_shape()) {
    using Value = std::remove_cvref_t<L>;
    static_assert(!detail::Unreduced<Value>,
                  "a Partial cannot leave an engine: it is one addend of a sum over the devices, so reduce "
                  "it first (all_reduce or reduce_scatter)");
    static_assert(!std::is_lvalue_reference_v<L> || detail::Unreduced<Value>,
                  "tensors move and are not copied: write std::move(x)");
    begin_.assign(global_.size(), 0);
    if constexpr (Slice<Value>) {
      placement_ = Placement::sharded(axis_of<Value>);
      begin_.at(axis_of<Value>) = detail::Access::place(laid);
    }
    if constexpr (std::same_as<Value, Owned>) placement_ = Placement::owned(laid.owner());
    if constexpr (requires { laid.ranges(); }) {
      Communicator* along = laid.owned_along(laid.mesh());
      placement_ = Placement::on_mesh(laid.cuts(laid.mesh()), along, along ? laid.owner() : 0);
      if (laid.is_mine()) {
        const Ranges mine = laid.ranges();
        for (std::size_t d = 0; d < begin_.size(); ++d) begin_[d] = mine[d].begin;
        detail::require_part(detail::Access::tensor(laid).shape(), mine, global_);
      }
      counts_here_ = laid.is_first_copy();
    }
    local_ = detail::Access::take(std::move(laid));
  }

#include "engine/layouts/refused/placed.inc"
  /// The result of a call that the compiler has refused already.
  Placed(const detail::NoLayout&) {}

  const Tensor& local() const& {
    return local_;
  }
  Tensor local() && {
    return std::move(local_);
  }
  Communicator& group() const {
    return *group_;
  }
  const Shape& global_shape() const {
    return global_;
  }
  const Placement& placement() const {
    return placement_;
  }
  /// The index along each axis at which this device's part begins.
  const Shape& begin() const {
    return begin_;
  }
  /// The global index of this device's first row.
  Index first_row() const {
    return begin_.empty() ? 0 : begin_[0];
  }
  /// Whether this device counts in a sum over the elements of all devices. On a mesh, several devices may
  /// hold the same part, and only the first of them counts.
  bool counts_here() const {
    return counts_here_ && is_here();
  }
  /// Whether this device holds a part. All devices do, unless one device owns the whole tensor, or
  /// it lies at one place of an axis.
  bool is_here() const;
  /// Cuts a whole tensor like this one and returns this device's part. Tests compare the two.
  Tensor slice_of(const Tensor& whole, SourceLine where = SourceLine::current()) const;
  void charge_to(Purpose purpose) {
    local_.charge_to(purpose);
  }
  /// Says that the devices of a group hold the same part, so that only the first of them counts it. A checked
  /// run verifies that they do.
  Placed copied_over(Communicator& copies, SourceLine where = SourceLine::current()) && {
    const CallSite call(where);
    copies.verify_replicated(local_);
    counts_here_ = counts_here_ && copies.device_id() == 0;
    return std::move(*this);
  }
  /// Multiplies this device's part by a factor, in place.
  void scale_by(float factor) {
    local_ = scale(std::move(local_), factor);
  }

  SourceLine put_at;  ///< the line that put it among gradients

 private:
  Communicator* group_ = nullptr;
  Tensor local_;
  Shape global_;
  Placement placement_;
  Shape begin_;
  bool counts_here_ = true;
};

}  // namespace shard
