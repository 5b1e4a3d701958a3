/// Chapter 04 in one main: each device has a stage of the layers, and micro-batches follow one another.
///
///     cmake --build build --target 04_pipeline.main
///     mpirun --oversubscribe -n 4 build/mains/04_pipeline
///     mpirun --oversubscribe -n 3 build/mains/04_pipeline 4 96      (four layers, 96 wide)
///     mpirun --oversubscribe -n 1 build/mains/04_pipeline

#include "engine/engines/optimizer.hpp"
#include "engine/program/mains/shown.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "pipeline.hpp"

using namespace shard;
using namespace shard::pipeline;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&](Communicator& world) {
    constexpr Index rows = 13, micro_batches = 8, model_dim = 64, batch_rows = 64, steps = 200;
    // 1. The network, from the command line, and a problem whose sums are exact in float32 in any order.
    const std::vector<Index> given = numbers_of(argc, argv, {{"layers", 8}, {"hidden", 128}});
    Mlp network(Model{.num_layers = given[0], .model_dim = model_dim, .hidden_dim = given[1]});
    const ExactProblem problem = network.exact_problem(rows, 0);
    // 2. The unsharded engine, which each device has for itself, and this chapter's, on one checkpoint.
    const auto checkpoint = host_checkpoint(problem.weights, "an exact problem");
    const auto alone = world.split(world.device_id(), 0);
    const auto unsharded = network.unsharded(*alone);
    unsharded->load_checkpoint(*checkpoint);
    Pipeline engine(world, {.work = one_forward_one_backward, .micro_batches = micro_batches});
    engine.load_checkpoint(*checkpoint);
    // 3. What each device owns: the layers of its stage, whole.
    show_owned(engine);
    // 4. The chapter's two lines by hand: an activation leaves for the next stage; it is 4 B F bytes.
    ledger().reset();
    const Model& model = network.model();
    const int me = world.device_id(), last = world.num_devices() - 1;
    const std::vector<Range> stages = cut_into_stages(model, last + 1, "equal");
    const Range mine = stages[static_cast<std::size_t>(me)];
    Owned a = Owned::mine(world, Tensor({rows, model.width(mine.end)}));  // (B, F) or (B, D)   any
    if (me < last) engine.send(me + 1, a.local());
    if (me > 0) a = Owned::mine(world, engine.receive(me - 1));
    auto row_bytes = [&](Index layer) { return bytes_per_element * model.width(layer); };
    const Index forward = me < last ? row_bytes(mine.end) : 0, back = me > 0 ? row_bytes(mine.begin) : 0;
    show_sent(world, "send, to the next stage", {me < last, rows * forward});
    // 5. A step of both. Gradients are equal in every bit; a micro-batch is a message forth and one back.
    const Gradients gradients = step_of(engine, problem);
    const Index messages = micro_batches * ((me < last) + (me > 0));
    show_sent(world, "a whole step", {messages, rows * (forward + back)});
    show_equal(world, gradients, step_of(*unsharded, problem));
    // 6. Training: digits, a new network, an optimizer whose state lies where its layer lies.
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
