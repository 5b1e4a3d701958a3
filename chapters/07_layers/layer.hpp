#pragma once

/// What the layers of this chapter share. A layer that is cut in one way is an engine of one layer: a forward
/// pass, a backward pass, and the parameters that this device holds.

#include <numeric>

#include "engine/device/layer_operations.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/layers/arithmetic.hpp"
#include "engine/layers/layout_of_rows.hpp"

namespace shard::layer_cuts {

/// ε of the norms.
inline constexpr float norm_epsilon = 0x1p-10F;
/// Features of a head of attention.
inline constexpr Index head_dim = 4;

/// \name How a layer computes: with real numbers, or on a grid, on which cuts can be compared bit for bit
/// @{
inline Arithmetic real_numbers() {
  return Arithmetic::real(head_dim);
}
inline Arithmetic grid() {
  Arithmetic how = real_numbers();
  how.unit = 0x1p-8F, how.base = ExponentialBase::two;
  return how;
}
/// @}

class Layer : public ShardedEngine {
 public:
  Layer(Communicator& group, Arithmetic how) : ShardedEngine(group), how_(how) {}
  Trainables trainable() override { return {}; }

 protected:
  const Arithmetic& how() const { return how_; }
  /// The result of a root, a quotient or an exponential, as this layer's arithmetic has it.
  Tensor rounded(Tensor t) const { return how_.rounded(std::move(t)); }

  /// A tensor that lies on the devices as `like` does. Elementwise functions keep the layout.
  template <Layout L>
  static L as(const L& like, Tensor local) {
    return relaid(std::move(local), like);
  }
  /// This device's part of the input, as L says.
  template <Layout L>
  L input(Tensor x) {
    if constexpr (std::same_as<L, Replicated>)
      return Replicated(group(), std::move(x));
    else
      return my_slice<axis_of<L>>(std::move(x));
  }
  /// The index at which this device's slice begins; 0 for a whole tensor.
  template <Layout L>
  static Index place_of(const L& x) {
    return shard::place_of(x);
  }
  /// A device's addend, taken for the sum: what some naive cuts do.
  static Tensor addend_of(Partial p) { return held(std::move(p)); }
  /// This device's slice of a tensor whose slices follow one another in device order.
  template <int Axis>
  Sharded<Axis> my_slice(Tensor slice) {
    Shape global = slice.shape();
    Index& extent = global[Axis];
    const std::vector<Index> extents = group().exchange("the slices' extents", extent);
    const auto mine = extents.begin() + device_id();
    const Index offset = std::accumulate(extents.begin(), mine, Index{0});
    extent = std::accumulate(mine, extents.end(), offset);
    return Sharded<Axis>(group(), std::move(slice), std::move(global), offset);
  }
  /// Other rows at the same places in the batch. The width may differ.
  template <WholeRows L>
  static L rows_like(const L& x, Tensor rows) {
    return shard::rows_like(std::move(rows), x);
  }
  /// The gradient of a parameter that every device holds. Where the rows are cut, it is a sum over devices.
  Replicated summed(Replicated whole) { return whole; }
  Replicated summed(Partial addend) { return all_reduce(std::move(addend)); }
  /// A vector that a device has summed over its rows: the whole sum, or one addend.
  Replicated over_rows(const Replicated&, Tensor sum) { return Replicated(group(), std::move(sum)); }
  template <int Axis>
  Replicated over_rows(const Sharded<Axis>&, Tensor sum) {
    return all_reduce(Partial(group(), std::move(sum)));
  }

  template <Layout L>
  static Placement layout_of() {
    return std::same_as<L, Replicated> ? Placement::replicated() : Placement::sharded(axis_of<L>);
  }

 private:
  Arithmetic how_;
};

}  // namespace shard::layer_cuts
