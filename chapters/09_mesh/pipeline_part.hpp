#pragma once

/// What a device computes at its place on the axis pipeline: blocks of two layers, each divided over tensor, on
/// its rows of the batch. b is the number of its rows in a micro-batch. (Part of data_pipeline_tensor.hpp.)

#include "axes.hpp"
#include "engine/schedules/staged_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::meshes {

using PipelineAxes = MeshAxes<data, pipeline, tensor>;
template <class... Letters>
using OnThree = OnMesh<PipelineAxes, Letters...>;

/// Two layers. They lie at one place on the axis pipeline, and are divided there over tensor.
struct StageBlock {
  OnThree<R, O, S<1>> w0;  // (D, f)   my columns
  OnThree<R, O, S<0>> w1;  // (f, D)   my rows
};
/// The addends of their gradients: sums over this device's rows.
struct BlockAddends {
  OnThree<P, O, S<1>> dw0;  // (D, f)
  OnThree<P, O, S<0>> dw1;  // (f, D)
};
/// The stages of all places, and the blocks that this device holds.
struct BlockStages {
  int count = 1;                   ///< on all places; stage s is at the place s mod places
  std::vector<StageBlock> blocks;  ///< of the network; those of other places are absent

  /// If there is a rest, the first stages have one block more.
  Range of(int stage) const { return part(std::ssize(blocks), count, stage); }
  const StageBlock& block(Index i) const { return blocks[static_cast<std::size_t>(i)]; }
  /// D: a stage's input is a block's input.
  Index width() const { return block(0).w0.global_shape()[0]; }
};

struct PipelinePart {
  using Value = OnThree<S<0>, O, R>;  // (b, D)   my rows, at one place of pipeline
  /// What the backward pass of a block needs.
  struct BlockKept {
    Value x;                   // (b, D)
    OnThree<S<0>, O, S<1>> h;  // (b, f)
  };
  using Kept = std::vector<BlockKept>;

  MeshEngine<PipelineAxes>& engine;
  const BlockStages& stages;
  Tensor rows;            ///< this device's, at the place of stage 0
  std::vector<Index> of;  ///< how many rows the devices along data have
  Index micro_batches;
  bool wants_input_grad;
  std::vector<BlockAddends> addends{};  ///< of each block; those of other places stay empty
  Tensor dx{};                          ///< like `rows`

  Value input(Index m) const { return value_of(slice(rows, 0, mine(m).begin, mine(m).end), m); }
  Value forward(Index, int s, Value x, Kept& kept) const {
    for (Index i = stages.of(s).begin; i < stages.of(s).end; ++i) {
      OnThree<S<0>, O, S<1>> h = relu(matmul(x, stages.block(i).w0));  // (b, f)   (S0, O, R)·(R, O, S1)
      OnThree<S<0>, O, P> out = matmul(h, stages.block(i).w1);         // (b, D)   (S0, O, S1)·(R, O, S0)
      if (!InferenceMode::is_on()) kept.push_back({std::move(x), std::move(h)});
      x = engine.all_reduce<tensor>(std::move(out));  // (b, D)   (S0, O, P) → (S0, O, R)
    }
    return x;
  }
  Value backward(Index m, int s, Value d, Kept kept) {
    for (Index i = stages.of(s).end; i-- > stages.of(s).begin; kept.pop_back()) {
      const auto& [x, h] = kept.back();
      const StageBlock& block = stages.block(i);
      auto& [dw0, dw1] = addends[static_cast<std::size_t>(i)];
      accumulate(dw1, matmul(transposed(h), d));                    // (f, D)   P over data
      OnThree<S<0>, O, S<1>> dh = matmul(d, transposed(block.w1));  // (b, f)
      OnThree<S<0>, O, S<1>> dz = relu_backward(std::move(dh), h);  // (b, f)
      accumulate(dw0, matmul(transposed(x), dz));                   // (D, f)   P over data
      if (i == 0 && !wants_input_grad) return {};
      d = engine.all_reduce<tensor>(matmul(dz, transposed(block.w0)));  // (b, D)   (S0, O, P) → (S0, O, R)
    }
    if (s > 0) return d;
    if (dx.size() == 0) dx = Tensor::uninitialized(rows.shape());  // all my rows
    assign(Rows(dx, mine(m).begin, mine(m).end), d.local());
    return {};
  }
  Value output_gradient(Index m, const Value& out, const LossGradient& loss_gradient) const {
    const Mesh& mesh = engine.mesh();
    const Index first = part(all_rows(), mesh.size(data::name), mesh.place(data::name)).begin;
    return value_of(loss_gradient(out.local(), first + mine(m).begin), m);
  }

  /// It goes to the device that has the next stage and the same place on data and tensor.
  std::vector<Shape> shapes(const Message& m) const { return {{mine(m.micro_batch).size(), stages.width()}}; }
  Tensor sent(Value& x, std::size_t) const { return std::move(x).local(); }
  Value value(const Message& m, std::vector<Tensor> t) const {
    return value_of(std::move(t[0]), m.micro_batch);
  }
  /// Each device along data cuts its own rows. A micro-batch has these pieces of all of them.
  Value value_of(Tensor my_piece, Index m) const {
    Index all = 0;
    for (Index rows_there : of) all += piece(rows_there, m).size();
    return {engine.mesh(), std::move(my_piece), {all, stages.width()}};
  }
  Index all_rows() const { return std::accumulate(of.begin(), of.end(), Index{0}); }

 private:
  Range piece(Index all, Index m) const {
    return part(all, static_cast<int>(micro_batches), static_cast<int>(m));
  }
  Range mine(Index m) const {
    return piece(of[static_cast<std::size_t>(engine.mesh().place(data::name))], m);
  }
};

}  // namespace shard::meshes
