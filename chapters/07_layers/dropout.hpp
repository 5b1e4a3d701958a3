#pragma once

/// Dropout (Srivastava et al. 2014): each element is kept with probability 1/2, and then doubled. Every cut is
/// free if the mask belongs to the element and not to the device: a counter-based generator makes the mask of
/// element i from i alone.

#include "engine/workloads/random.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// The layer, whole or cut along an axis. The naive cut counts the elements of each device from 0, as a
/// generator with one seed for all does.
template <Layout L, bool is_naive = false>
class Dropout : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint&) override {}
  Placement input_layout() const override { return layout_of<L>(); }

  Placed forward(Tensor x) override {
    L laid = input<L>(std::move(x));  // (B, D), or my rows or columns
    mask_ = mask_of(laid.global_shape()[1], place_of(laid), laid.local().shape());
    return as(laid, multiply(laid.local().clone(), mask_));
  }
  Gradients backward(Tensor dy) override {
    Gradients gradients;
    gradients.put(Gradients::input_grad, input<L>(multiply(std::move(dy), mask_)));
    return gradients;
  }

 private:
  /// 0 or 2 for each of my elements, by its place in the whole matrix.
  static Tensor mask_of(Index width, Index offset, const Shape& mine) {
    const CounterRandom random(7, "dropout");
    const Index row = std::same_as<L, Sharded<0>> && !is_naive ? offset : 0;
    const Index column = std::same_as<L, Sharded<1>> && !is_naive ? offset : 0;
    std::vector<float> mask;
    for (Index i = 0; i < mine[0]; ++i)
      for (Index c = 0; c < mine[1]; ++c) {
        const Index place = (row + i) * width + column + c;
        mask.push_back(random.uniform(static_cast<std::uint64_t>(place)) < 0.5F ? 2 : 0);
      }
    return Tensor::from_host(mine, mask);
  }

  Tensor mask_;
};

}  // namespace shard::layer_cuts
