/// Chapter 08 in one main: a decoder whose heads, hidden units and vocabulary are divided.
///
///     cmake --build build --target 08_decoder.main
///     mpirun --oversubscribe -n 3 build/mains/08_decoder
///     mpirun --oversubscribe -n 2 build/mains/08_decoder 1 64      (one block, 64 hidden units)
///     mpirun --oversubscribe -n 1 build/mains/08_decoder

#include "engine/engines/optimizer.hpp"
#include "engine/program/mains/shown.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "single.hpp"
#include "tensor.hpp"

using namespace shard;
using namespace shard::decoders;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&](Communicator& world) {
    constexpr Index rows = 5, length = 16, batch_rows = 8, steps = 20;
    // 1. The network, from the command line, and a problem whose sums are exact in float32 in any order.
    const std::vector<Index> given = numbers_of(argc, argv, {{"blocks", 4}, {"hidden", 96}});
    Decoder network({.vocabulary = Characters(Characters::default_path()).vocabulary(),
                     .model_dim = 48,
                     .heads = 6,
                     .key_heads = 3,
                     .head_dim = 8,
                     .hidden_dim = given[1],
                     .num_blocks = given[0],
                     .how = Arithmetic::real(8)},
                    length);
    const ExactProblem problem = network.exact_problem(rows, 0);
    // 2. The unsharded engine, which each device has for itself, and this chapter's, on one checkpoint.
    const auto checkpoint = host_checkpoint(problem.weights, "an exact problem");
    const DecoderModel& model = as_decoder(*problem.workload).model();
    const auto alone = world.split(world.device_id(), 0);
    SingleDecoder unsharded(*alone, model);
    unsharded.load_checkpoint(*checkpoint);
    TensorDecoder<Sharded<1>, Replicated> engine(world, model);
    engine.load_checkpoint(*checkpoint);
    // 3. What each device owns: some heads, some hidden units, some rows of the vocabulary.
    show_owned(engine);
    // 4. The chapter's two lines by hand: rows of a divided table, and what their sum sends.
    ledger().reset();
    const Tokens tokens = Tokens::read(rows_on_device(problem.input, {0, rows}), model.vocabulary);
    const Sharded<0> table =
        engine.shard<0>(Replicated(world, checkpoint->whole(embedding_name())));  // (V/N, D)
    Partial addend = embedding(table, tokens.ids);        // (T, D)   my tokens' rows, else 0
    Replicated x = engine.all_reduce(std::move(addend));  // (T, D)   P → R
    auto ring = [&](Index elements) {
      return ring_all_reduce(elements, world.num_devices(), world.device_id());
    };
    show_sent(world, "all_reduce of the embedding, P → R", ring(tokens.rows() * model.model_dim));
    // 5. A step of both. Gradients are equal in every bit; a block has four such lines, the head one, and the
    //    loss three numbers of each token.
    const Gradients gradients = step_of(engine, problem);
    show_sent(world, "a whole step",
              (2 + 4 * model.num_blocks) * ring(tokens.rows() * model.model_dim) + 3 * ring(tokens.rows()));
    show_equal(world, gradients, step_of(unsharded, problem));
    // 6. Training: a text, a new network, an optimizer whose state is divided as the weights are.
    network.open_data();
    TensorDecoder<Sharded<1>, Replicated> trained(world, network.model());
    trained.load_checkpoint(*generate_checkpoint(network.parameters(), 0));
    Adam adam({.rate = 0.003F});
    for (Index step = 1; step <= steps; ++step) {
      const auto batch = network.batch(batch_rows, 0, step);
      adam.step(trained, step_of(trained, *batch, batch_rows));
      show_loss(world, step, steps, *batch);
    }
    return 0;
  });
}
