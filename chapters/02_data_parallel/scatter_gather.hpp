#pragma once

///     ./chapters/run 02 -n 4 train --variant scatter-gather
///
/// The oldest form of data parallel, kept to show why it is slow. Device 0 owns the model. In every step it
/// sends each other device the whole model and a slice of the batch, collects their outputs, and later
/// collects their gradients. The bytes that device 0 sends and holds grow with the number of devices, and the
/// other devices wait for it. The table's "bytes sent" are those of device 0.
/// Builds on: 01_single_device.
///
/// Slices are sent as plain tensors, without a layout. The compiler therefore does not notice a forgotten
/// sum; only the tests do.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::data_parallel {

class ScatterGather : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// Device 0 owns everything, the others nothing.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_.clear();
    for (Index l = 0; l < model_of(checkpoint).num_layers; ++l)
      weights_.push_back(load_owned(checkpoint, layer_name(l), 0));
  }

  /// ## Forward
  /// Device 0 gets the whole batch, (B, D), and ends with the whole output.
  Placed forward(Tensor input) override {
    std::vector<Tensor> model = receive_model();
    Tensor a = scatter_rows(std::move(input));  // (b, D)
    std::vector<Tensor> inputs;
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));  // (b, F)
      Tensor out = matmul(a, weight(l, model));    // (b, F) or (b, D)
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(model), std::move(inputs));
    Tensor whole = gather_rows(std::move(a));  // (B, D) on device 0
    Shape shape = {group().exchange("rows of the batch", whole.extent(0))[0],
                   weights_.back().global_shape()[1]};
    return Owned(group(), device_id() == 0 ? std::move(whole) : Tensor(), shape, 0);
  }

  /// ## Backward
  /// Device 0 gets the whole `dout`. Each device sends its addends to device 0, which adds them up.
  Gradients backward(Tensor dout) override {
    auto [model, inputs] = tape_.pop();
    Tensor d = scatter_rows(std::move(dout));  // (b, D)
    Gradients gradients;
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      const Tensor& a = inputs[l];                            // (b, D) or (b, F)
      Tensor dw = sum_on_device_0(matmul(transposed(a), d));  // like the weights
      gradients.put(layer_name(static_cast<Index>(l)),
                    Owned(group(), std::move(dw), weights_[l].global_shape(), 0));
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weight(l, model)));  // like a
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    if (!wants_input_grad()) return gradients;
    Tensor dx = gather_rows(std::move(d));  // (B, D) on device 0
    Shape shape = {group().exchange("rows of the batch", dx.extent(0))[0], weights_[0].global_shape()[0]};
    gradients.put(Gradients::input_grad,
                  Owned(group(), device_id() == 0 ? std::move(dx) : Tensor(), shape, 0));
    return gradients;
  }

  Placement input_layout() const override { return Placement::owned(0); }

  Trainables trainable() override { return layers(weights_); }

 private:
  /// Device 0 sends every weight to every other device, one after the other. The others hold this copy until
  /// the backward pass is done.
  std::vector<Tensor> receive_model() {
    std::vector<Tensor> model;
    for (const Owned& w : weights_) {
      if (device_id() != 0) model.push_back(receive(0));
      for (int k = 1; k < num_devices() && device_id() == 0; ++k) send(k, w.local());
    }
    return model;
  }
  const Tensor& weight(std::size_t l, const std::vector<Tensor>& model) const {
    return device_id() == 0 ? weights_[l].local() : model[l];
  }

  /// Device 0 sends a slice of its rows to each device. Returns this device's slice.
  Tensor scatter_rows(Tensor whole) {
    if (device_id() != 0) return receive(0);
    for (int k = 1; k < num_devices(); ++k) {
      Range rows = part(whole.extent(0), num_devices(), k);
      send(k, slice(whole, 0, rows.begin, rows.end));
    }
    return slice(whole, 0, 0, part(whole.extent(0), num_devices(), 0).end);
  }

  /// Returns the rows of all devices, joined, on device 0, and an empty tensor elsewhere.
  Tensor gather_rows(Tensor mine) {
    if (device_id() != 0) {
      send(0, mine);
      return Tensor();
    }
    std::vector<Tensor> slices;
    slices.push_back(std::move(mine));
    for (int k = 1; k < num_devices(); ++k) slices.push_back(receive(k));
    std::vector<const Tensor*> parts;
    for (const Tensor& t : slices) parts.push_back(&t);
    return concatenate(parts, 0);
  }

  /// Returns the sum of all devices' addends on device 0, and an empty tensor elsewhere.
  Tensor sum_on_device_0(Tensor addend) {
    if (device_id() != 0) {
      send(0, addend);
      return Tensor();
    }
    for (int k = 1; k < num_devices(); ++k) addend = add(std::move(addend), receive(k));
    return addend;
  }

  std::vector<Owned> weights_;                           // (D, F), (F, D), ... on device 0
  Tape<std::vector<Tensor>, std::vector<Tensor>> tape_;  // the received model; each layer's input
};

}  // namespace shard::data_parallel
