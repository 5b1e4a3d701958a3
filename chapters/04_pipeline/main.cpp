/// Chapter 04 in one main: each device has a stage of the layers, and micro-batches follow one another.
///
///     cmake --build build --target 04_pipeline.main
///     mpirun --oversubscribe -n 4 build/mains/04_pipeline

#include <fmt/format.h>

#include "engine/engines/optimizer.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "pipeline.hpp"

using namespace shard;
using namespace shard::pipeline;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [](Communicator& world) {
    constexpr Index rows = 64, steps = 200;
    constexpr std::uint64_t seed = 0;
    // 1. The network, eight layers, and the digits that it learns to mend.
    Mlp network(Model{.num_layers = 8, .model_dim = 64, .hidden_dim = 128});
    network.open_data();
    // 2. An engine on all devices, with the schedule 1F1B. Each loads the layers of its stage.
    Pipeline engine(world, {.work = one_forward_one_backward, .micro_batches = 8});
    engine.load_checkpoint(*generate_checkpoint(network.parameters(), seed));
    // 3. An optimizer, whose state lies where its layer lies.
    Adam adam({.rate = 0.003F});
    for (Index step = 1; step <= steps; ++step) {
      // 4. A batch: the first stage needs its rows.
      const std::unique_ptr<TrainingBatch> batch = network.batch(rows, seed, step);
      Tensor input = batch->input(engine.input_rows(rows));
      // 5. Forward and backward of the micro-batches, as the schedule says. Neighbours send activations and gradients.
      Gradients gradients = engine.forward_backward(
          std::move(input), [&](const Tensor& out, Index row) { return batch->loss_gradient(out, row); });
      // 6. Each device updates the layers of its stage.
      adam.step(engine, gradients);
      // 7. The loss over the whole batch: each device adds the rows that it has seen.
      const double loss = batch->loss(world);
      if (world.device_id() == 0 && (step == 1 || step % 40 == 0))
        fmt::print("step {:3}   loss {:.5f}\n", step, loss);
    }
    return 0;
  });
}
