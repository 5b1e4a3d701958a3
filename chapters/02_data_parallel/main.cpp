/// Chapter 02 in one main: every device has the whole network, and its rows of each batch.
///
///     cmake --build build --target 02_data_parallel.main
///     mpirun --oversubscribe -n 4 build/mains/02_data_parallel
///     mpirun --oversubscribe -n 3 build/mains/02_data_parallel 4 96      (four layers, 96 wide)
///     mpirun --oversubscribe -n 1 build/mains/02_data_parallel

#include "data_parallel.hpp"
#include "engine/engines/optimizer.hpp"
#include "engine/program/mains/shown.hpp"
#include "engine/workloads/mlp/mlp.hpp"

using namespace shard;
using namespace shard::data_parallel;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&](Communicator& world) {
    constexpr Index rows = 13, model_dim = 64, batch_rows = 64, steps = 200;
    // 1. The network, from the command line, and a problem whose sums are exact in float32 in any order.
    const std::vector<Index> given = numbers_of(argc, argv, {{"layers", 2}, {"hidden", 128}});
    Mlp network(Model{.num_layers = given[0], .model_dim = model_dim, .hidden_dim = given[1]});
    const ExactProblem problem = network.exact_problem(rows, 0);
    // 2. The unsharded engine, which each device has for itself, and this chapter's, on one checkpoint.
    const auto checkpoint = host_checkpoint(problem.weights, "an exact problem");
    const auto alone = world.split(world.device_id(), 0);
    const auto unsharded = network.unsharded(*alone);
    unsharded->load_checkpoint(*checkpoint);
    DataParallel engine(world);
    engine.load_checkpoint(*checkpoint);
    // 3. What each device owns: every device has the whole network.
    show_owned(engine);
    // 4. The chapter's two lines by hand, and what the second one sends: 2 (N-1)/N of a gradient's bytes.
    ledger().reset();
    const Model& model = network.model();
    const Index last = model.num_layers - 1;
    Replicated inputs(world,
                      Tensor({rows, model.width(last)}));  // (B, F)   any: what counts here is the bytes
    Replicated douts(world, rows_on_device(problem.output_grad, {0, rows}));
    Sharded<0> x = engine.shard<0>(inputs), d = engine.shard<0>(douts);  // (b, F), (b, D)   my rows
    Partial dw = matmul(transposed(x), d);                               // (F, D)   S0ᵀ·S0 = P
    Replicated sum = engine.all_reduce(std::move(dw));                   // (F, D)   P → R
    auto reduced = [&](Index layer) {
      return ring_all_reduce(model.weights(layer), world.num_devices(), world.device_id());
    };
    show_sent(world, "all_reduce, P → R", reduced(last));
    // 5. A step of both. Gradients are equal in every bit; each layer has one such line.
    const Gradients gradients = step_of(engine, problem);
    Traffic of_step;
    for (Index layer = 0; layer <= last; ++layer) of_step += reduced(layer);
    show_sent(world, "a whole step", of_step);
    show_equal(world, gradients, step_of(*unsharded, problem));
    // 6. Training: digits, a new network, an optimizer. Each device makes the same step.
    network.open_data();
    engine.load_checkpoint(*generate_checkpoint(network.parameters(), 0));
    Adam adam({.rate = 0.003F});
    for (Index step = 1; step <= steps; ++step) {
      const auto batch = network.batch(batch_rows, 0, step);
      adam.step(engine, step_of(engine, *batch, batch_rows));
      show_loss(world, step, steps, *batch);
    }
    return 0;
  });
}
