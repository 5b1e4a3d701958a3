/// Chapter 05 in one main: a mixture of experts, which are divided over the devices.
///
///     cmake --build build --target 05_expert.main
///     mpirun --oversubscribe -n 4 build/mains/05_expert
///     mpirun --oversubscribe -n 3 build/mains/05_expert 2 96      (two layers an expert, 96 wide)
///     mpirun --oversubscribe -n 1 build/mains/05_expert

#include "engine/engines/optimizer.hpp"
#include "engine/program/mains/shown.hpp"
#include "engine/workloads/mixture/mixture.hpp"
#include "expert.hpp"

using namespace shard;
using namespace shard::expert;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&](Communicator& world) {
    constexpr Index rows = 13, experts = 7, top_k = 2, model_dim = 64, batch_rows = 64, steps = 200;
    // 1. The network, from the command line, and a problem whose sums are exact in float32 in any order.
    const std::vector<Index> given = numbers_of(argc, argv, {{"layers", 2}, {"hidden", 128}});
    Mixture network({{.num_layers = given[0], .model_dim = model_dim, .hidden_dim = given[1]}, experts},
                    {.top_k = top_k});
    const ExactProblem problem = network.exact_problem(rows, 0);
    // 2. The unsharded engine, which each device has for itself, and this chapter's, on one checkpoint.
    const auto checkpoint = host_checkpoint(problem.weights, "an exact problem");
    const auto alone = world.split(world.device_id(), 0);
    const auto unsharded = problem.workload->unsharded(*alone);
    unsharded->load_checkpoint(*checkpoint);
    ExpertParallel engine(world, as_mixture(*problem.workload).rule());
    engine.load_checkpoint(*checkpoint);
    // 3. What each device owns: the router, and its experts.
    show_owned(engine);
    // 4. The chapter's two lines by hand: tokens choose their experts, and go to them, 4 D bytes each.
    ledger().reset();
    const int N = world.num_devices(), me = world.device_id();
    Sharded<0> x =
        engine.shard<0>(Replicated(world, rows_on_device(problem.input, {0, rows})));  // (b, D)   my tokens
    Replicated router(world, checkpoint->whole(router_name()));                        // (D, E)
    const RoutingRule& rule = as_mixture(*problem.workload).rule();
    const Choices choices = choose(matmul(x, router).local(), rule);  // (b, E)   S0·R = S0
    const std::vector<Index> chosen = engine.all_gather(count_choices(choices.experts, top_k, experts));
    const Traffic counts = ring_all_gather(slices(N, top_k * experts, N), me);  // k E numbers of each device
    show_sent(world, "all_gather of counts", counts);
    const RoutedCounts slots = give_slots(chosen, N, top_k, experts, rule.capacity(rows, experts));
    const Plan plan = make_plan(choices.experts, slots, me);
    const Route route = make_route(slots, me);
    Tensor mine = engine.all_to_all(gather_rows(x.local(), plan.tokens), route.to);  // (m, D)
    auto sent = [&](std::vector<Index> counts_of) {
      for (Index& tokens_there : counts_of) tokens_there *= model_dim;
      return pairwise_all_to_all(counts_of, me);
    };
    show_sent(world, "all_to_all of tokens", sent(route.to));
    // 5. A step of both. Gradients are equal in every bit. Tokens, answers and gradients of answers travel.
    const Gradients gradients = step_of(engine, problem);
    show_sent(world, "a whole step",
              counts + 2 * sent(route.to) + sent(route.from) + ring_all_reduce(model_dim * experts, N, me));
    show_equal(world, gradients, step_of(*unsharded, problem));
    // 6. Training: digits, a new network, an optimizer. The state of an expert lies where the expert lies.
    network.open_data();
    ExpertParallel trained(world, network.rule());
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
