/// Chapter 03 in one main: each weight matrix is divided, and every device has the whole batch.
///
///     cmake --build build --target 03_tensor_parallel.main
///     mpirun --oversubscribe -n 4 build/mains/03_tensor_parallel

#include <fmt/format.h>

#include "engine/engines/optimizer.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "tensor_parallel.hpp"

using namespace shard;
using namespace shard::tensor_parallel;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [](Communicator& world) {
    constexpr Index rows = 64, steps = 200;
    constexpr std::uint64_t seed = 0;
    // 1. The network, two layers, and the digits that it learns to mend.
    Mlp network(Model{.num_layers = 2, .model_dim = 64, .hidden_dim = 128});
    network.open_data();
    // 2. An engine on all devices. Each loads its columns of layer 0, and its rows of layer 1.
    TensorParallel engine(world);
    engine.load_checkpoint(*generate_checkpoint(network.parameters(), seed));
    // 3. An optimizer, whose state is divided as the weights are.
    Adam adam({.rate = 0.003F});
    for (Index step = 1; step <= steps; ++step) {
      // 4. A batch: all of its rows, on every device.
      const std::unique_ptr<TrainingBatch> batch = network.batch(rows, seed, step);
      Tensor input = batch->input(engine.input_rows(rows));
      // 5. Forward and backward. An all-reduce sums the addends of the output.
      Gradients gradients = engine.forward_backward(
          std::move(input), [&](const Tensor& out, Index row) { return batch->loss_gradient(out, row); });
      // 6. Each device updates its slices.
      adam.step(engine, gradients);
      // 7. The loss over the whole batch: each device adds the rows that it has seen.
      const double loss = batch->loss(world);
      if (world.device_id() == 0 && (step == 1 || step % 40 == 0))
        fmt::print("step {:3}   loss {:.5f}\n", step, loss);
    }
    return 0;
  });
}
