#pragma once

/// Pooling along a sequence, or along a side of an image: row i of the output is the largest, or the mean, of
/// the rows i − 1, i and i + 1 that exist. Channels are free. A cut of the rows costs one row from each
/// neighbour, the halo, and the gradient of that row in the backward pass.

#include "layer.hpp"

namespace shard::layer_cuts {

enum class Pool { largest, mean };

/// The layer, whole, with its channels cut (Sharded<1>), or with its rows cut (Sharded<0>). The naive cut
/// takes the border of its slice for the border of the sequence.
template <Layout L, Pool pool, bool is_naive = false>
class Pooling : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint&) override {}
  Placement input_layout() const override { return layout_of<L>(); }

  Placed forward(Tensor input_rows) override {
    x_ = input<L>(std::move(input_rows));  // (L, C)
    length_ = x_.local().extent(0);
    if (length_ == 0) {
      exchanged(Tensor(), Tensor());
      return as(x_, x_.local().clone());
    }
    const Tensor rows = with_halo();  // (L + 2, C)
    const Tensor above = slice(rows, 0, 0, length_), below = slice(rows, 0, 2, length_ + 2);
    if (pool == Pool::mean) {
      Tensor sum = add(add(x_.local().clone(), above), below);  // (L, C)
      return as(x_, rounded(scale_rows(std::move(sum), shares())));
    }
    // max(a, b) = a + ReLU(b − a)
    second_ = subtract(x_.local().clone(), above);  // (L, C)
    Tensor largest = add(relu(second_), above);
    third_ = subtract(below.clone(), largest);  // (L, C)
    return as(x_, add(relu(third_), largest));
  }

  Gradients backward(Tensor dy) override {
    Gradients gradients;
    if (length_ == 0) {
      exchanged(Tensor(), Tensor());
      gradients.put(Gradients::input_grad, as(x_, std::move(dy)));
      return gradients;
    }
    Tensor above, mine, below;  // (L, C)  what of dy goes to the rows above, to my rows, and to those below
    if (pool == Pool::mean) {
      mine = rounded(scale_rows(std::move(dy), shares()));
      above = mine.clone(), below = mine.clone();
    } else {
      below = relu_backward(dy.clone(), third_);
      Tensor rest = subtract(std::move(dy), below);
      mine = relu_backward(rest.clone(), second_);
      above = subtract(std::move(rest), mine);
    }
    gradients.put(Gradients::input_grad,
                  as(x_, gathered(std::move(above), std::move(mine), std::move(below))));
    return gradients;
  }

 private:
  bool has_above() const { return cuts_rows && device_id() > 0; }
  bool has_below() const { return cuts_rows && x_.global_shape()[0] > place_of(x_) + length_; }

  /// My rows with a row more at each end. At a border it is a row that changes nothing: zeros for the mean,
  /// and for the largest the row beside it.
  Tensor with_halo() {
    const Tensor& x = x_.local();
    auto [above, below] = exchanged(slice(x, 0, 0, 1), slice(x, 0, length_ - 1, length_));
    const Tensor* const all[] = {&above, &x, &below};
    return concatenate(all, 0);
  }
  /// The gradient of my rows: row i is the middle of one window, and lies above and below those beside it.
  Tensor gathered(Tensor above, Tensor mine, Tensor below) {
    const Index last = length_ - 1;
    auto [from_above, from_below] = exchanged(slice(above, 0, 0, 1), slice(below, 0, last, length_));
    const Tensor next = slice(above, 0, 1, length_), before = slice(below, 0, 0, last);
    const Tensor* const upwards[] = {&next, &from_below};
    const Tensor* const downwards[] = {&from_above, &before};
    return add(add(std::move(mine), concatenate(upwards, 0)), concatenate(downwards, 0));
  }
  /// Gives the device above one row, and the device below another; returns what they give. Without a
  /// neighbour it is what the border has. A device without rows takes part, and has nothing to give.
  std::pair<Tensor, Tensor> exchanged(const Tensor& upwards, const Tensor& downwards) {
    Tensor from_above = border(upwards), from_below = border(downwards);
    if constexpr (cuts_rows) {
      const bool is_here = length_ > 0;
      send_async(upwards, from_below, is_here && has_above() ? std::optional(device_id() - 1) : std::nullopt)
          .wait();
      send_async(downwards, from_above,
                 is_here && has_below() ? std::optional(device_id() + 1) : std::nullopt)
          .wait();
    }
    return {std::move(from_above), std::move(from_below)};
  }
  static Tensor border(const Tensor& edge) {
    return pool == Pool::mean ? Tensor(edge.shape()) : edge.clone();
  }

  /// 1 / the rows of each window that exist, (L).
  Tensor shares() const {
    const Index first = std::same_as<L, Sharded<0>> && !is_naive ? place_of(x_) : 0;
    const Index all = is_naive ? length_ : x_.global_shape()[0];
    std::vector<float> shares;
    for (Index i = first; i < first + length_; ++i) {
      const Index rows = 3 - (i == 0 ? 1 : 0) - (i + 1 == all ? 1 : 0);
      shares.push_back(1 / static_cast<float>(rows));
    }
    return Tensor::from_host({length_}, shares);
  }

  static constexpr bool cuts_rows = std::same_as<L, Sharded<0>> && !is_naive;
  L x_;                    // (L, C)
  Tensor second_, third_;  // (L, C)  what ReLU took, for the largest
  Index length_ = 0;       // L
};

}  // namespace shard::layer_cuts
