#include <algorithm>

#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mixture/problem.hpp"

namespace shard {

namespace {

/// A live problem has N devices with three experts each, and 3N types of tokens. A token's 3N features say
/// which type it has: the feature with the type's number is 8, the others are 0. The router then
/// gives every expert a logit of 128 or 0, and each type has two experts with 128:
///
/// - Type s < N: expert 0 and the second expert of device s. Device s has 2N tokens of this type.
/// - Type N + s: the second and the third expert of device s. Every device has one token of this type.
/// - Type 2N + s: the first and the third expert of device s, or, as expert 0 is full, the same as type N.
///   Every device has one token of this type.
///
/// Each device has as many experts without a token: none, or with one expert a token its third one. So all
/// devices make the same number of calls, also where gradients of an expert's copies are reduced.
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
    prefer(2 * N + d, d == 0 ? 1 : 3 * d);
    prefer(2 * N + d, 3 * d + 2);
  }
  return router;
}

HostTensor live_input(Index batch, Index width, Index N) {
  HostTensor input{{batch, width}, std::vector<float>(static_cast<std::size_t>(batch * width))};
  for (Index t = 0; t < batch; ++t) {
    const Index device = t / (4 * N), i = t % (4 * N);
    const Index type = i < 2 * N ? device : i - N;
    input.values[static_cast<std::size_t>(t * width + type)] = 8.0F;
  }
  return input;
}

/// Layer 0 has no zeros, so it reads every feature, and it differs between experts. In later layers every row
/// and every column has at least two ones.
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
  const Index N = devices, E = 3 * N, batch = 4 * N * N;
  const MixtureModel model{{num_layers, 3 * N, 2 * N}, E};
  RoutingRule rule{top_k};
  rule.capacity_factor =
      1.5 / static_cast<double>(top_k);  // 2N choices: as many as device 0 has for expert 0
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
