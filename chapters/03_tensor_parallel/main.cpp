/// Chapter 03 in one main: each weight matrix is divided, and every device has the whole batch.
///
///     cmake --build build --target 03_tensor_parallel.main
///     mpirun --oversubscribe -n 4 build/mains/03_tensor_parallel
///     mpirun --oversubscribe -n 3 build/mains/03_tensor_parallel 4 96      (four layers, 96 wide)
///     mpirun --oversubscribe -n 1 build/mains/03_tensor_parallel

#include "engine/engines/optimizer.hpp"
#include "engine/program/mains/shown.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "tensor_parallel.hpp"

using namespace shard;
using namespace shard::tensor_parallel;

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
    TensorParallel engine(world);
    engine.load_checkpoint(*checkpoint);
    // 3. What each device owns: columns of even layers, rows of odd ones.
    show_owned(engine);
    // 4. The chapter's two lines by hand, and what the second one sends: 2 (N-1)/N of 4 B D bytes.
    ledger().reset();
    Replicated x(world, rows_on_device(problem.input, {0, rows}));                         // (B, D)
    Sharded<1> w0 = engine.shard<1>(Replicated(world, checkpoint->whole(layer_name(0))));  // (D, F/N)
    Sharded<0> w1 = engine.shard<0>(Replicated(world, checkpoint->whole(layer_name(1))));  // (F/N, D)
    Partial addend = matmul(relu(matmul(x, w0)), w1);       // (B, D)   R·S1 = S1, S1·S0 = P
    Replicated out = engine.all_reduce(std::move(addend));  // (B, D)   P → R
    const Traffic of_one = ring_all_reduce(rows * model_dim, world.num_devices(), world.device_id());
    show_sent(world, "all_reduce, P → R", of_one);
    // 5. A step of both. Gradients are equal in every bit; forward and backward have one such line for each
    //    block, but for the first block's dL/dx, which nobody wants.
    const Gradients gradients = step_of(engine, problem);
    show_sent(world, "a whole step", (given[0] - 1) * of_one);
    show_equal(world, gradients, step_of(*unsharded, problem));
    // 6. Training: digits, a new network, an optimizer whose state is divided as the weights are.
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
