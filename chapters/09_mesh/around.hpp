#pragma once

/// Blocks that go around an axis, for Cannon's products: those of a factor, and those of a result.

#include <optional>

#include "blocks.hpp"

namespace shard::meshes {

/// Sends a block along an axis and receives another one, each only where a device is given.
inline std::optional<Tensor> exchanged(Communicator& axis, const Tensor& sent, std::optional<int> to,
                                       std::optional<int> from, const Shape& expected) {
  std::optional<Future<Tensor>> arriving;
  if (from) arriving = axis.post_receive(*from, expected);
  if (to) axis.send(*to, sent);
  return arriving ? std::optional(arriving->get()) : std::nullopt;
}

/// Which block a device of an axis has in each step. With the place p, and the place s on the other axis, it
/// has block (p + s + t) mod N in step t, where N devices lie along the axis. On a square mesh, the devices
/// that begin with block k lie on a diagonal.
struct Around {
  int devices, me, diagonal;

  Around(const Communicator& axis, int other_place)
      : devices(axis.num_devices()), me(axis.device_id()), diagonal(other_place) {}
  int block(int step) const { return place(me + diagonal + step); }
  bool is_mine(int step) const { return block(step) == me; }
  /// The device this number of places further, unless it is the home of this block.
  std::optional<int> unless_home(int block, int places) const {
    return place(me + places) == block ? std::nullopt : std::optional(place(me + places));
  }
  int place(int p) const { return (p + devices) % devices; }
  /// A matrix of this shape, with the extent that a block has along a dimension.
  Shape shape_of_block(Shape shape, int dimension, Index whole, int block) const {
    shape[static_cast<std::size_t>(dimension)] = part(whole, devices, block).size();
    return shape;
  }
};

/// The blocks of a factor, which come around an axis. The first step brings each block onto its diagonal, and
/// each later step moves it by one device. A block does not come home, since its device still has it.
class Circulating {
 public:
  Circulating(Communicator& axis, int diagonal, const Block& factor, int dimension)
      : axis_(axis),
        around_(axis, diagonal),
        mine_(factor.local()),
        dimension_(dimension),
        extent_(factor.global_shape()[static_cast<std::size_t>(dimension)]) {}

  /// The block of the next step.
  const Tensor& next() {
    const int hop = step_ == 0 ? around_.diagonal : 1;
    const int held = step_ == 0 ? around_.me : around_.block(step_ - 1);
    const int block = around_.block(step_++);
    const std::optional<int> from =
        block == around_.me ? std::nullopt : std::optional(around_.place(around_.me + hop));
    std::optional<Tensor> arrived =
        exchanged(axis_, held == around_.me ? mine_ : guest_, around_.unless_home(held, -hop), from,
                  around_.shape_of_block(mine_.shape(), dimension_, extent_, block));
    guest_ = arrived ? std::move(*arrived) : Tensor();
    return arrived ? guest_ : mine_;
  }

 private:
  Communicator& axis_;
  Around around_;
  const Tensor& mine_;
  int dimension_;
  Index extent_;
  Tensor guest_;  // another device's block
  int step_ = 0;
};

/// The blocks of a result, which go around and collect an addend on each device. Each ends at home: once when
/// it comes by, and once after the last step, with the addends of the devices behind.
class Collecting {
 public:
  Collecting(Communicator& axis, int diagonal, Shape mine, int dimension, Index extent)
      : axis_(axis),
        around_(axis, diagonal),
        shape_(std::move(mine)),
        dimension_(dimension),
        extent_(extent) {}

  /// Adds this step's addend to the block that is here.
  void add_product(Operand a, Operand b) {
    std::optional<Tensor> sum = step_ == 0 ? std::nullopt : passed_on();
    if (!sum) sum.emplace(shape_in(step_));
    matmul_accumulate(a, b, *sum);
    (around_.is_mine(step_) ? mine_ : guest_) = std::move(*sum);
    ++step_;
  }
  /// After the last step: this device's block of the result.
  Tensor result() && {
    const int held = around_.block(step_ - 1);
    const std::optional<int> to = held == around_.me ? std::nullopt : std::optional(held);
    const std::optional<Tensor> rest =
        exchanged(axis_, guest_, to, around_.unless_home(around_.me, 1 - around_.diagonal), shape_);
    return rest ? add(std::move(mine_), *rest) : std::move(mine_);
  }

 private:
  Shape shape_in(int step) const {
    return around_.shape_of_block(shape_, dimension_, extent_, around_.block(step));
  }
  /// What the device before has collected of this step's block. A device does not pass on its own block.
  std::optional<Tensor> passed_on() {
    const std::optional<int> to =
        around_.is_mine(step_ - 1) ? std::nullopt : std::optional(around_.place(around_.me - 1));
    std::optional<Tensor> sum =
        exchanged(axis_, guest_, to, around_.unless_home(around_.block(step_), 1), shape_in(step_));
    guest_ = Tensor();
    return sum;
  }

  Communicator& axis_;
  Around around_;
  Shape shape_;
  int dimension_;
  Index extent_;
  Tensor mine_, guest_;  // of the result: my block, and another device's
  int step_ = 0;
};

}  // namespace shard::meshes
