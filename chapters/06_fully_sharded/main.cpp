/// Chapter 06 in one main: parameters, gradients, state and batch are divided.
///
///     cmake --build build --target 06_fully_sharded.main
///     mpirun --oversubscribe -n 4 build/mains/06_fully_sharded
///     mpirun --oversubscribe -n 3 build/mains/06_fully_sharded 4 96      (four layers, 96 wide)
///     mpirun --oversubscribe -n 1 build/mains/06_fully_sharded

#include "engine/engines/optimizer.hpp"
#include "engine/program/mains/shown.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "zero3.hpp"

using namespace shard;
using namespace shard::fully_sharded;

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
    Zero3 engine(world);
    engine.load_checkpoint(*checkpoint);
    // 3. What each device owns: its rows of every matrix.
    show_owned(engine);
    // 4. The chapter's two lines by hand, and what each sends: (N-1)/N of a matrix's bytes.
    ledger().reset();
    const Model& model = network.model();
    const int N = world.num_devices(), me = world.device_id();
    Sharded<0> mine = engine.shard<0>(Replicated(world, checkpoint->whole(layer_name(0))));  // (D/N, F)
    Sharded<0> x =
        engine.shard<0>(Replicated(world, rows_on_device(problem.input, {0, rows})));  // (b, D)   my rows
    Replicated w0 = engine.all_gather(mine);                                           // (D, F)   S0 → R
    show_sent(world, "all_gather, S0 → R", ring_all_gather(slices(model_dim, given[1], N), me));
    Partial dw = matmul(transposed(x), matmul(x, w0));            // (D, F)     S0ᵀ·S0 = P
    Sharded<0> my_sum = engine.reduce_scatter<0>(std::move(dw));  // (D/N, F)   P → S0
    show_sent(world, "reduce_scatter, P → S0", ring_reduce_scatter(slices(model_dim, given[1], N), me));
    // 5. A step of both. Gradients are equal in every bit; each layer is gathered forward, and again backward
    //    but for the first, and its gradient is scattered.
    const Gradients gradients = step_of(engine, problem);
    Traffic of_step;
    for (Index layer = 0; layer < model.num_layers; ++layer) {
      const std::vector<Index> parts = slices(model.width(layer), model.width(layer + 1), N);
      of_step += (layer > 0 ? 2 : 1) * ring_all_gather(parts, me) + ring_reduce_scatter(parts, me);
    }
    show_sent(world, "a whole step", of_step);
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
