//// 11.1 kept first
#pragma once

///     ./chapters/run 11 -n 4 train --layers 4 --hidden-dim 16
///
/// A strategy for networks whose hidden activations are narrow: F is less than D. The rows of the first matrix of a
/// block are divided, and the columns of the second one. So the sums that devices make are of F numbers a row and not
/// of D, and between blocks each device keeps its columns of the activation.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load_sharded<0>(checkpoint, layer_name(l)), load_sharded<1>(checkpoint, layer_name(l + 1))});
  }

  Placed forward(Tensor input) override {
    Sharded<1> x = shard<1>(Replicated(group(), std::move(input)));  // (B, D/N)   my columns
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      Partial z = matmul(x, block.w0);
      Replicated sum = all_reduce(std::move(z));
      kept.push_back({std::move(x), relu(std::move(sum))});
      x = matmul(kept.back().h, block.w1);
    }
    tape_.push(std::move(kept));
    return all_gather(std::move(x));  // (B, D)     S1 → R
  }

  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    Sharded<1> d = shard<1>(Replicated(group(), std::move(dout)));  // (B, D/N)
    for (Index i = static_cast<Index>(blocks_.size()) - 1; i >= 0; --i, kept.pop_back()) {
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      gradients.put(layer_name(2 * i + 1), matmul(transposed(kept.back().h), d));  // (F, D/N)
      Replicated dh = all_reduce(matmul(d, transposed(block.w1)));              // (B, F)     P → R: narrow
      Replicated dz = relu_backward(std::move(dh), kept.back().h);              // (B, F)
      gradients.put(layer_name(2 * i), matmul(transposed(kept.back().x), dz));  // (D/N, F)
      if (i > 0 || wants_input_grad()) d = matmul(dz, transposed(block.w0));    // (B, D/N)
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return layers(blocks_, &Block::w0, &Block::w1); }

 private:
  struct Block {
    Sharded<0> w0;  // (D/N, F)   my rows
    Sharded<1> w1;  // (F, D/N)   my columns
  };
  struct Kept {
    Sharded<1> x;  // (B, D/N)
    Replicated h;  // (B, F)
  };

  std::vector<Block> blocks_;
  Tape<std::vector<Kept>> tape_;
};

}  // namespace shard::own
//// 11.1 rows of the batch
#pragma once

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

/// The rows of the batch are divided: for a narrow block, its gradients are smaller than its activations.
class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }
  Placed forward(Tensor input) override {
    Sharded<0> a = my_rows(std::move(input));
    std::vector<Sharded<0>> inputs;
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));
      Sharded<0> out = matmul(a, weights_[l]);
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);
    Gradients gradients;
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      gradients.put(layer_name(l), all_reduce(matmul(transposed(inputs[l]), d)));
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));
      if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }
  Placement input_layout() const override { return Placement::sharded(0); }
  Trainables trainable() override { return layers(weights_); }

 private:
  std::vector<Replicated> weights_;
  Tape<std::vector<Sharded<0>>> tape_;
};

}  // namespace shard::own
//// 11.1 red: parts of the weights
#pragma once

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

/// Rows of the batch are divided, and rows of the weights, which are gathered where they are used.
class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    shards_ = load_all<Sharded<0>>(checkpoint, layer_names(checkpoint));
  }
  Placed forward(Tensor input) override {
    Sharded<0> a = my_rows(std::move(input));
    std::vector<Sharded<0>> inputs;
    for (std::size_t l = 0; l < shards_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));
      Sharded<0> out = matmul(a, all_gather(shards_[l]));
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);
    Gradients gradients;
    for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
      gradients.put(layer_name(l), reduce_scatter<0>(matmul(transposed(inputs[l]), d)));
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(all_gather(shards_[l])));
      if (relu_before(l)) d = relu_backward(std::move(d), inputs[l]);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }
  Placement input_layout() const override { return Placement::sharded(0); }
  Trainables trainable() override { return layers(shards_); }

 private:
  std::vector<Sharded<0>> shards_;
  Tape<std::vector<Sharded<0>>> tape_;
};

}  // namespace shard::own
//// 11.1 a name for what is kept
#pragma once

///     ./chapters/run 11 -n 4 train --layers 4 --hidden-dim 16
///
/// A strategy for networks whose hidden activations are narrow: F is less than D. The rows of the first matrix of a
/// block are divided, and the columns of the second one. So the sums that devices make are of F numbers a row and not
/// of D, and between blocks each device keeps its columns of the activation.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load_sharded<0>(checkpoint, layer_name(l)), load_sharded<1>(checkpoint, layer_name(l + 1))});
  }

  Placed forward(Tensor input) override {
    Sharded<1> x = shard<1>(Replicated(group(), std::move(input)));  // (B, D/N)   my columns
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      Replicated h = relu(all_reduce(matmul(x, block.w0)));  // (B, F)     S1·S0 = P → R: narrow
      Sharded<1> out = matmul(h, block.w1);                  // (B, D/N)   R·S1 = S1
      kept.push_back({std::move(x), std::move(h)});
      x = std::move(out);
    }
    tape_.push(std::move(kept));
    return all_gather(std::move(x));  // (B, D)     S1 → R
  }

  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    Sharded<1> d = shard<1>(Replicated(group(), std::move(dout)));  // (B, D/N)
    for (Index i = static_cast<Index>(blocks_.size()) - 1; i >= 0; --i, kept.pop_back()) {
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      const Kept& here = kept.back();
      gradients.put(layer_name(2 * i + 1), matmul(transposed(here.h), d));    // (F, D/N)
      Replicated dh = all_reduce(matmul(d, transposed(block.w1)));            // (B, F)     P → R: narrow
      Replicated dz = relu_backward(std::move(dh), here.h);                   // (B, F)
      gradients.put(layer_name(2 * i), matmul(transposed(here.x), dz));       // (D/N, F)
      if (i > 0 || wants_input_grad()) d = matmul(dz, transposed(block.w0));  // (B, D/N)
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return layers(blocks_, &Block::w0, &Block::w1); }

 private:
  struct Block {
    Sharded<0> w0;  // (D/N, F)   my rows
    Sharded<1> w1;  // (F, D/N)   my columns
  };
  struct Kept {
    Sharded<1> x;  // (B, D/N)
    Replicated h;  // (B, F)
  };

  std::vector<Block> blocks_;
  Tape<std::vector<Kept>> tape_;
};

}  // namespace shard::own
//// 11.1 rows of the batch, sums in flight
#pragma once

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

/// Each device has some rows of the batch. Sums of gradients travel while it computes those of earlier layers.
class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    all_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }
  Placed forward(Tensor input) override {
    std::vector<Sharded<0>> kept(all_.size());
    Sharded<0> x = my_rows(std::move(input));
    for (std::size_t l = 0; l < kept.size(); ++l) {
      kept[l] = relu_before(l) ? relu(std::move(x)) : std::move(x);
      x = matmul(kept[l], all_[l]);
    }
    tape_.push(std::move(kept));
    return x;
  }
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout));
    std::vector<Future<Replicated>> sums(all_.size());
    for (int i = static_cast<int>(all_.size()) - 1; i >= 0; --i) {
      const auto l = static_cast<std::size_t>(i);
      sums[l] = all_reduce_async(matmul(transposed(kept[l]), d));
      if (i == 0 && !wants_input_grad()) break;
      d = matmul(d, transposed(all_[l]));
      if (relu_before(l)) d = relu_backward(std::move(d), kept[l]);
    }
    Gradients gradients;
    for (std::size_t l = sums.size(); l-- > 0;) gradients.put(layer_name(l), sums[l].get());
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }
  Placement input_layout() const override { return Placement::sharded(0); }
  Trainables trainable() override { return layers(all_); }

 private:
  std::vector<Replicated> all_;
  Tape<std::vector<Sharded<0>>> tape_;
};

}  // namespace shard::own
//// 11.1 narrow sums, which travel while a device computes
#pragma once

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

/// A block's first matrix is divided by rows, its second one by columns: sums are as wide as the hidden activation.
class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    pairs_.clear();
    for (Index l = 0; l < layers_in_blocks(checkpoint); l += 2)
      pairs_.push_back({load_sharded<0>(checkpoint, layer_name(l)), load_sharded<1>(checkpoint, layer_name(l + 1))});
  }
  Placed forward(Tensor input) override {
    std::vector<Inputs> all(pairs_.size());
    Sharded<1> x = shard<1>(Replicated(group(), std::move(input)));
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      auto& [mine, hidden] = all[i];
      mine = std::move(x);
      hidden = relu(all_reduce(matmul(mine, pairs_[i].first)));
      x = matmul(hidden, pairs_[i].second);
    }
    tape_.push(std::move(all));
    return all_gather(std::move(x));
  }
  Gradients backward(Tensor dout) override {
    auto [all] = tape_.pop();
    Gradients gradients;
    Sharded<1> d = shard<1>(Replicated(group(), std::move(dout)));
    for (std::size_t i = pairs_.size(); i-- > 0; all.pop_back()) {
      const Inputs& here = all.back();
      Future<Replicated> sum = all_reduce_async(matmul(d, transposed(pairs_[i].second)));
      gradients.put(layer_name(2 * i + 1), matmul(transposed(here.hidden), d));
      const Replicated dz = relu_backward(sum.get(), here.hidden);
      gradients.put(layer_name(2 * i), matmul(transposed(here.mine), dz));
      if (i > 0 || wants_input_grad()) d = matmul(dz, transposed(pairs_[i].first));
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }
  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return layers(pairs_, &Pair::first, &Pair::second); }

 private:
  struct Pair {
    Sharded<0> first;   // my rows
    Sharded<1> second;  // my columns
  };
  struct Inputs {
    Sharded<1> mine;
    Replicated hidden;
  };

  std::vector<Pair> pairs_;
  Tape<std::vector<Inputs>> tape_;
};

}  // namespace shard::own
//// 11.1 red: a copy of column-row
#pragma once

/// A copy.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// F/N columns of each even layer and the matching F/N rows of each odd one.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load_sharded<1>(checkpoint, layer_name(l)), load_sharded<0>(checkpoint, layer_name(l + 1))});
  }

  /// ## Forward
  Placed forward(Tensor input) override {
    Replicated x(group(), std::move(input));  // (B, D)     the same on every device
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      Sharded<1> h = relu(matmul(x, block.w0));  // (B, F/N)   my columns:  R·S1 = S1
      Partial out = matmul(h, block.w1);         // (B, D)     my addend:   S1·S0 = P
      kept.push_back({std::move(x), std::move(h)});
      x = all_reduce(std::move(out));  // (B, D)     P → R: the block's one synchronisation forward
    }
    tape_.push(std::move(kept));
    return x;
  }

  /// ## Backward
  /// The gradients of the weights are divided like the weights, and need no communication.
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    Replicated d(group(), std::move(dout));  // (B, D)
    Gradients gradients;
    for (Index i = num_blocks() - 1; i >= 0; --i, kept.pop_back()) {
      const auto& [x, h] = kept.back();
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      gradients.put(layer_name(2 * i + 1), matmul(transposed(h), d));  // (F/N, D)   S1ᵀ·R = S0
      Sharded<1> dh = matmul(d, transposed(block.w1));                 // (B, F/N)   R·S0ᵀ = S1
      Sharded<1> dz = relu_backward(std::move(dh), h);                 // (B, F/N)
      gradients.put(layer_name(2 * i), matmul(transposed(x), dz));     // (D, F/N)   R·S1 = S1
      if (i == 0 && !wants_input_grad()) continue;
      Partial dx = matmul(dz, transposed(block.w0));  // (B, D)     S1·S1ᵀ = P
      d = all_reduce(std::move(dx));  // (B, D)     P → R: without it, all earlier gradients are wrong
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }

  Trainables trainable() override { return layers(blocks_, &Block::w0, &Block::w1); }

 private:
  struct Block {
    Sharded<1> w0;  // (D, F/N)   my columns
    Sharded<0> w1;  // (F/N, D)   my rows
  };
  struct Kept {
    Replicated x;  // (B, D)
    Sharded<1> h;  // (B, F/N)
  };

  Index num_blocks() const { return static_cast<Index>(blocks_.size()); }

  std::vector<Block> blocks_;
  Tape<std::vector<Kept>> tape_;  // each block's activations
};

}  // namespace shard::own
