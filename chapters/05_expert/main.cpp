/// Chapter 05 in one main: a mixture of experts, which are divided over the devices.
///
///     cmake --build build --target 05_expert.main
///     mpirun --oversubscribe -n 4 build/mains/05_expert

#include <fmt/format.h>

#include "engine/engines/optimizer.hpp"
#include "engine/workloads/mixture/mixture.hpp"
#include "expert.hpp"

using namespace shard;
using namespace shard::expert;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [](Communicator& world) {
    constexpr Index rows = 64, steps = 200;
    constexpr std::uint64_t seed = 0;
    // 1. The network: a router and seven experts, two of them for each token; and the digits.
    Mixture network({{.num_layers = 2, .model_dim = 64, .hidden_dim = 128}, 7}, {.top_k = 2});
    network.open_data();
    // 2. An engine on all devices. Each loads the router, and its experts.
    ExpertParallel engine(world, network.rule());
    engine.load_checkpoint(*generate_checkpoint(network.parameters(), seed));
    // 3. An optimizer. The state of an expert lies where the expert lies.
    Adam adam({.rate = 0.003F});
    for (Index step = 1; step <= steps; ++step) {
      // 4. A batch, of which this device has some tokens.
      const std::unique_ptr<TrainingBatch> batch = network.batch(rows, seed, step);
      Tensor input = batch->input(engine.input_rows(rows));
      // 5. Forward and backward. Tokens go to the devices of their experts, and answers come back.
      Gradients gradients = engine.forward_backward(
          std::move(input), [&](const Tensor& out, Index row) { return batch->loss_gradient(out, row); });
      // 6. Each device updates the router and its experts.
      adam.step(engine, gradients);
      // 7. The loss over the whole batch: each device adds the rows that it has seen.
      const double loss = batch->loss(world);
      if (world.device_id() == 0 && (step == 1 || step % 40 == 0))
        fmt::print("step {:3}   loss {:.5f}\n", step, loss);
    }
    return 0;
  });
}
