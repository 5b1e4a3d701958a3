/// Chapter 01 in one main: the unsharded network. Each device computes the same.
///
///     cmake --build build --target 01_single_device.main
///     mpirun --oversubscribe -n 4 build/mains/01_single_device

#include <fmt/format.h>

#include "engine/engines/optimizer.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "single_device.hpp"

using namespace shard;
using namespace shard::single_device;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [](Communicator& world) {
    constexpr Index rows = 64, steps = 200;
    constexpr std::uint64_t seed = 0;
    // 1. The network, two layers, and the digits that it learns to mend.
    Mlp network(Model{.num_layers = 2, .model_dim = 64, .hidden_dim = 128});
    network.open_data();
    // 2. An engine, which has the whole network, and its initial values.
    SingleDevice engine(world);
    engine.load_checkpoint(*generate_checkpoint(network.parameters(), seed));
    // 3. An optimizer.
    Adam adam({.rate = 0.003F});
    for (Index step = 1; step <= steps; ++step) {
      // 4. A batch: all of its rows.
      const std::unique_ptr<TrainingBatch> batch = network.batch(rows, seed, step);
      Tensor input = batch->input(engine.input_rows(rows));
      // 5. Forward, the gradient of the loss, backward.
      Gradients gradients = engine.forward_backward(
          std::move(input), [&](const Tensor& out, Index row) { return batch->loss_gradient(out, row); });
      // 6. The optimizer updates the weights.
      adam.step(engine, gradients);
      // 7. The loss over the whole batch: each device adds the rows that it has seen.
      const double loss = batch->loss(world);
      if (world.device_id() == 0 && (step == 1 || step % 40 == 0))
        fmt::print("step {:3}   loss {:.5f}\n", step, loss);
    }
    return 0;
  });
}
