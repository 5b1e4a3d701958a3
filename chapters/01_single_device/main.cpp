/// Chapter 01 in one main: the unsharded network. Each device computes the same.
///
///     cmake --build build --target 01_single_device.main
///     mpirun --oversubscribe -n 1 build/mains/01_single_device
///     mpirun --oversubscribe -n 1 build/mains/01_single_device 4 96      (four layers, 96 wide)
///     mpirun --oversubscribe -n 3 build/mains/01_single_device            (each computes the same)

#include "engine/engines/optimizer.hpp"
#include "engine/program/mains/shown.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "single_device.hpp"

using namespace shard;
using namespace shard::single_device;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&](Communicator& world) {
    constexpr Index rows = 13, model_dim = 64, batch_rows = 64, steps = 200;
    // 1. The network, from the command line, and a problem whose sums are exact in float32 in any order.
    const std::vector<Index> given = numbers_of(argc, argv, {{"layers", 2}, {"hidden", 128}});
    Mlp network(Model{.num_layers = given[0], .model_dim = model_dim, .hidden_dim = given[1]});
    const ExactProblem problem = network.exact_problem(rows, 0);
    // 2. The engine. What every other chapter's engine must equal, it must itself: the definitions.
    const auto checkpoint = host_checkpoint(problem.weights, "an exact problem");
    SingleDevice engine(world);
    engine.load_checkpoint(*checkpoint);
    // 3. What each device owns: everything.
    show_owned(engine);
    // 4. The chapter's two lines by hand. They send nothing.
    ledger().reset();
    Replicated x(world, rows_on_device(problem.input, {0, rows}));  // (B, D)
    Replicated w0(world, checkpoint->whole(layer_name(0)));         // (D, F)
    Replicated w1(world, checkpoint->whole(layer_name(1)));         // (F, D)
    Replicated h = relu(matmul(x, w0));                             // (B, F)   R·R = R
    Replicated out = matmul(h, w1);                                 // (B, D)   R·R = R
    show_sent(world, "two products, R·R = R", {});
    // 5. A step. Its gradients equal those that exact arithmetic computes from the definitions, in every bit.
    const Gradients gradients = step_of(engine, problem);
    show_sent(world, "a whole step", {});
    show_equal(world, gradients, solve(problem, world));
    // 6. Training: digits, a new network, an optimizer.
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
