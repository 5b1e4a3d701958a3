#pragma once

///     ./chapters/run 02 -n 4 train --variant bucketed --layers 6 --bucket-bytes 65536
///
/// Data parallel with the reduction hidden behind the backward pass (Li et al. 2020, "PyTorch Distributed",
/// section 3.2). The backward pass computes gradients from the last layer to the first and collects them in a
/// bucket. When a bucket is full, its all-reduce starts, and runs while the device computes the gradients of
/// earlier layers. To reduce a bucket costs fewer messages than to reduce each small gradient in it.
/// Builds on: 02_data_parallel/data_parallel.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::data_parallel {

class BucketedDataParallel : public ShardedEngine {
 public:
  BucketedDataParallel(Communicator& group, Index bucket_bytes)
      : ShardedEngine(group), bucket_bytes_(bucket_bytes) {}

  /// ## What this device owns
  /// Everything, as in plain data parallel.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  Placed forward(Tensor input) override {
    Sharded<0> a = my_rows(std::move(input));  // (b, D)
    std::vector<Sharded<0>> inputs;
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));  // (b, F)
      Sharded<0> out = matmul(a, weights_[l]);     // (b, F) or (b, D)    S0·R = S0
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// ## Backward
  /// The loop of plain data parallel. It starts the all-reduce of each bucket that is full.
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);  // like the output
    Bucket filling;
    std::vector<InFlight> in_flight;
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];           // (b, D) or (b, F)
      filling.add(l, matmul(transposed(a), d));  // like the weights    S0ᵀ·S0 = S1·S0 = P
      if (filling.bytes >= bucket_bytes_ || l == 0) in_flight.push_back(send_off(std::exchange(filling, {})));
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));  // like a    S0·R = S0
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    Gradients gradients;
    for (InFlight& bucket : in_flight) collect(bucket, gradients);
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }

  Trainables trainable() override { return layers(weights_); }

 private:
  /// Addends that one all-reduce will reduce.
  struct Bucket {
    std::vector<std::size_t> layers;
    std::vector<Partial> addends;
    Index bytes = 0;

    void add(std::size_t layer, Partial dw) {
      bytes += num_elements(dw.global_shape()) * static_cast<Index>(sizeof(float));
      layers.push_back(layer);
      addends.push_back(std::move(dw));
    }
  };
  /// A bucket whose all-reduce has started.
  struct InFlight {
    std::vector<std::size_t> layers;
    Future<Replicated> sum;
  };

  /// Starts a bucket's all-reduce. Several gradients are copied into one tensor first; one is not copied.
  InFlight send_off(Bucket bucket) {
    Partial addend =
        bucket.addends.size() == 1 ? std::move(bucket.addends[0]) : pack(std::move(bucket.addends));
    return {std::move(bucket.layers), all_reduce_async(std::move(addend))};  // P → R, some time
  }

  void collect(InFlight& bucket, Gradients& gradients) {
    Replicated sum = bucket.sum.get();
    if (bucket.layers.size() == 1) {
      gradients.put(layer_name(bucket.layers[0]), std::move(sum));
      return;
    }
    std::vector<Shape> shapes;
    for (std::size_t l : bucket.layers) shapes.push_back(weights_[l].global_shape());
    std::vector<Replicated> dw = unpack(std::move(sum), shapes);
    for (std::size_t i = 0; i < dw.size(); ++i) gradients.put(layer_name(bucket.layers[i]), std::move(dw[i]));
  }

  Index bucket_bytes_;
  std::vector<Replicated> weights_;     // (D, F), (F, D), ...
  Tape<std::vector<Sharded<0>>> tape_;  // each layer's input, my rows
};

}  // namespace shard::data_parallel
