#include <algorithm>

#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mixture_choices.hpp"
#include "engine/workloads/mixture_problem.hpp"

namespace shard {

namespace {

/// Of the features of a live problem, the first 2N say what a token's type is. Types 0 to N-1, 2N tokens of
/// type s on device s, tie between expert 0 and their own device's second one; types N to 2N-1, one of each
/// on every device, tie between the second and the third one of device 0 to N-1. With 8 in the input, a logit
/// is 128 or 0.
HostTensor live_router(const MixtureModel& m, Index N) {
  HostTensor router{{m.model_dim, m.num_experts},
                    std::vector<float>(static_cast<std::size_t>(m.model_dim * m.num_experts))};
  auto prefer = [&](Index type, Index expert) {
    router.values[static_cast<std::size_t>(type * m.num_experts + expert)] = logit_step / 8;
  };
  for (Index d = 0; d < N; ++d) {
    prefer(d, 0);
    prefer(d, 3 * d + 1);
    prefer(N + d, 3 * d + 1);
    prefer(N + d, 3 * d + 2);
  }
  return router;
}

HostTensor live_input(Index batch, Index width, Index N) {
  HostTensor input = exact::integers({batch, width}, CounterRandom(3, "live input"), 1, 2);
  for (Index t = 0; t < batch; ++t) {
    const Index device = t / (3 * N), i = t % (3 * N);
    const Index type = i < 2 * N ? device : i - N;
    for (Index c = 0; c < 2 * N; ++c)
      input.values[static_cast<std::size_t>(t * width + c)] = c == type ? 8.0F : 0.0F;
  }
  return input;
}

/// Layer 0 reads everything, and no expert as another; in later ones every row and column has two ones or
/// more.
HostTensor live_weights(const MixtureModel& m, Index expert, Index layer) {
  const Shape shape = m.shape(layer);
  HostTensor w = exact::integers(shape, CounterRandom(3, "live " + expert_layer_name(expert, layer)), 1, 2);
  const Index period = std::min(shape[0], shape[1]);
  for (Index i = 0; i < num_elements(shape) && layer > 0; ++i) {
    const Index distance = (i / shape[1] - i % shape[1] + num_elements(shape)) % period;
    w.values[static_cast<std::size_t>(i)] = distance <= 1 ? 1.0F : 0.0F;
  }
  return w;
}

}  // namespace

ExactProblem make_live_mixture(Index num_layers, Index top_k, int devices) {
  const Index N = devices, E = 3 * N, batch = 3 * N * N;
  const MixtureModel model{{num_layers, 3 * N, 2 * N}, E};
  RoutingRule rule{top_k};
  rule.capacity_factor = 1;  // k N choices: device 0 alone has 2N first ones for expert 0
  rule.aux_weight = static_cast<double>(top_k * batch * batch) / static_cast<double>(E);
  ExactProblem problem;
  problem.workload = std::make_shared<Mixture>(model, rule);
  problem.input = live_input(batch, model.model_dim, N);
  problem.output_grad =
      exact::integers({batch, model.width(num_layers)}, CounterRandom(3, "live output gradient"), 1, 2, 4);
  problem.weights[router_name()] = live_router(model, N);
  for (Index e = 0; e < E; ++e)
    for (Index l = 0; l < num_layers; ++l)
      problem.weights[expert_layer_name(e, l)] = live_weights(model, e, l);
  return problem;
}

}  // namespace shard
