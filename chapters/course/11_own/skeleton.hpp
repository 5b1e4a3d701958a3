#pragma once

///     ./chapters/run 11 -n 4 train --layers 4 --hidden-dim 16
///
/// Say here what is divided, and why less is sent.

#include "engine/engines/sharded_engine.hpp"
#include "engine/not_done.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// Loads what this device owns: `load_all<Replicated>`, `load_sharded<0>` ...
  void load_checkpoint(const Checkpoint& checkpoint) override { not_done("11.1"); }
  /// The output, in any layout that has whole rows.
  Placed forward(Tensor input) override { not_done("11.1"); }
  /// A gradient for each parameter that `trainable` lists, divided as that is, and dL/dx if it is wanted.
  Gradients backward(Tensor dout) override { not_done("11.1"); }
  /// Which part of the input `forward` is given.
  Placement input_layout() const override { not_done("11.1"); }
  /// The parameters that this device updates.
  Trainables trainable() override { not_done("11.1"); }
};

}  // namespace shard::own
