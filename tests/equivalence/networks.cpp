#include "tests/equivalence/networks.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mixture/mixture.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "engine/workloads/t5/t5.hpp"

namespace shard::testing {

namespace {

/// \name Stacks of layers, and kinds that this file does not know
/// @{
/// The accepted numbers of layers among `usual`. If `usual` has too few layers: the fewest accepted, plus
/// each of `more`. At least one. \throws Error usage when 1 to 1000 layers are too few
std::vector<Index> depths(const WorkloadKind& kind, const Accepts& accepts, const std::vector<Index>& usual,
                          const std::vector<Index>& more) {
  auto is_accepted = [&](Index layers) { return accepts(*kind.sized(layers, 5, 7)); };
  Index fewest = 1;
  while (!is_accepted(fewest))
    if (++fewest > 1000)
      throw Error(Code::usage, "expected a number of layers that the variant accepts, given 1 to 1000");
  std::vector<Index> all = usual;
  if (fewest > 2) {
    all.clear();
    for (Index m : more) all.push_back(fewest + m);
  }
  const Index last = all.back();
  std::erase_if(all, [&](Index layers) { return !is_accepted(layers); });
  if (all.empty()) all.push_back(is_accepted(last + 1) ? last + 1 : fewest);
  return all;
}

std::vector<TestCase> cases_of_stacks(const WorkloadKind& kind, const Accepts& accepts) {
  std::vector<TestCase> all;
  for (Index layers : depths(kind, accepts, {1, 2, 3, 6}, {0, 1, 3}))
    for (auto [batch, dim, hidden] :
         {std::array<Index, 3>{9, 5, 7}, {1, 3, 2}, {7, 5, 2}, {13, 4, 11}, {16, 8, 16}})
      all.push_back({kind.sized(layers, dim, hidden), batch});
  return all;
}

/// Whether sums stay exact if every layer has ones everywhere, and odd layers have twos on every model_dim-th
/// diagonal.
bool may_be_dense(const Model& model, Index batch) {
  double most = 16.0 * 2.0 * static_cast<double>(batch);
  for (Index l = 1; l < model.num_layers; ++l)
    most *= static_cast<double>(model.width(l) + (relu_before(l) ? model.width(l) / model.model_dim : 0));
  return most <= 0x1p24;
}

/// An exact problem in which every number on every device affects a result. All numbers are positive, so no
/// ReLU hides a mistake before it. Layers are dense if sums stay exact, so that every slice of a matrix reads
/// every input. Otherwise only even layers are dense, and odd layers have at least two ones in each row and
/// column. (If only an inactive hidden unit reads a number, no comparison notices a mistake in it.)
ExactProblem live_stack(const Model& model, Index batch) {
  ExactProblem problem = make_exact_problem(model, batch, 3);
  const bool all_dense = may_be_dense(model, batch);
  for (Index l = 0; l < model.num_layers; ++l) {
    HostTensor& w = problem.weights.at(layer_name(l));
    Index period = std::min(w.shape[0], w.shape[1]);
    for (Index i = 0; i < num_elements(w.shape); ++i) {
      Index distance = (i / w.shape[1] - i % w.shape[1] + num_elements(w.shape)) % period;
      bool is_dense = !relu_before(l) && model.num_layers <= 6;  // in deeper stacks, sums are not exact
      Index diagonals = model.num_layers <= 10 ? 2 : 1;
      float value = is_dense || distance < diagonals ? 1.0F : 0.0F;
      if (all_dense && relu_before(l)) value = distance == 0 ? 2.0F : 1.0F;
      w.values[static_cast<std::size_t>(i)] = value;
    }
  }
  CounterRandom random(3, "positive");
  std::uint64_t i = 0;
  for (float& pixel : problem.input.values) pixel = static_cast<float>(random.integer(i++, 1, 16));
  for (float& gradient : problem.output_grad.values) gradient = static_cast<float>(random.integer(i++, 1, 2));
  return problem;
}

std::vector<ExactProblem> live_stacks(int devices, const Accepts& accepts) {
  std::vector<ExactProblem> all;
  bool is_dense = false;  // the shallowest
  for (Index layers : depths(mlp(), accepts, {2, 3, 6}, {0, 1})) {
    const Model model{layers, devices, 2 * devices};
    const bool may_be = may_be_dense(model, 3 * devices);
    if (is_dense && !may_be) continue;  // a cut matrix would read a part of each row only
    if (all.empty()) is_dense = may_be;
    all.push_back(live_stack(model, 3 * devices));
  }
  return all;
}
/// @}

/// \name Mixtures
/// @{
/// More and fewer experts than devices and than tokens; with and without capacities, some so small that
/// every expert drops tokens; with and without the balancing loss and skew (which exact problems set to 0).
std::vector<TestCase> cases_of_mixtures(bool is_switch, const Accepts& accepts) {
  std::vector<std::pair<Index, RoutingRule>> all_routed = {
      {7, {2, 1.25, 0.01, 0}}, {3, {3, std::nullopt, 0, 0}}, {5, {2, 0.5, 0.3, 0.5}}};
  if (is_switch)
    all_routed = {
        {7, {1, 1.25, 0.01, 0}}, {3, {1, std::nullopt, 0, 0}}, {4, {1, 0.5, 0.3, 0.5}}, {1, {1, 1, 0, 0}}};
  std::vector<TestCase> all;
  for (Index layers : {1, 2, 3, 6})
    for (auto [batch, dim, hidden] : {std::array<Index, 3>{9, 5, 7}, {1, 3, 2}, {13, 4, 11}, {16, 8, 16}})
      for (const auto& [num_experts, rule] : all_routed) {
        auto mixture = std::make_shared<Mixture>(MixtureModel{{layers, dim, hidden}, num_experts}, rule);
        if (accepts(*mixture)) all.push_back({mixture, batch});
      }
  return all;
}

/// A live problem has N devices with three experts each, and 3N types of tokens. A token's 3N features say
/// which type it has: the feature with the type's number is 8, the others are 0. The router then
/// gives every expert a logit of 128 or 0, and each type has two experts with 128:
///
/// - Type s < N: expert 0 and the second expert of device s. Device s has 2N tokens of this type.
/// - Type N + s: the second and the third expert of device s. Every device has one token of this type.
/// - Type 2N + s: the first and the third expert of device s, or, as expert 0 is full, the same as type N.
///   Every device has one token of this type.
///
/// All devices have equally many experts without a token: none, or, with one expert for each token, the third one.
/// So all devices make the same number of calls, also where gradients of an expert's copies are reduced.
HostTensor live_router(const MixtureModel& m, Index N) {
  HostTensor router{{m.model_dim, m.num_experts},
                    std::vector<float>(static_cast<std::size_t>(m.model_dim * m.num_experts))};
  auto prefer = [&](Index type, Index expert) {
    router.values[static_cast<std::size_t>(type * m.num_experts + expert)] = 128.0F / 8;
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

/// A problem in which every number that is sent affects a result. All numbers are positive, and no two
/// experts are equal. Every device receives as many rows as it sends, so shapes stay the same when a call is
/// left out. Only device 0 fills expert 0 to its capacity. So a wrong count of its choices changes the
/// balancing loss, but not the tokens that are sent. (Otherwise the devices would disagree on the rows that
/// arrive, and the job would end with that error.)
ExactProblem live_mixture(Index num_layers, Index top_k, int devices) {
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
/// @}

/// \name Language models
/// @{
/// An exact problem whose rows have the first token of every slice of the vocabulary among the ids, which lie in
/// columns [first, end). All tokens have a label and a gradient.
ExactProblem live(ExactProblem problem, int devices, Index vocabulary, Index first, Index end) {
  for (Index i = 0; i < num_elements(problem.input.shape); ++i) {
    float& value = problem.input.values[static_cast<std::size_t>(i)];
    const Index column = i % problem.input.shape[1];
    if ((column >= first && column < end && i % 2 == 0) || value == Tokens::no_label)
      value = static_cast<float>(i / 2 % devices * (vocabulary / devices));
  }
  for (float& value : problem.output_grad.values)
    if (value == 0) value = 16;
  return problem;
}

/// The network with the fewest blocks that a variant accepts, since some need one for each device; null if none.
template <class Network, class Model, class... Lengths>
std::shared_ptr<Network> accepted(Model model, Index Model::*blocks, const Accepts& accepts,
                                  Lengths... lengths) {
  for (; model.*blocks <= 64; ++(model.*blocks))
    if (auto made = std::make_shared<Network>(model, lengths...); accepts(*made)) return made;
  return nullptr;
}

DecoderModel decoder_model(Index blocks, Index model_dim, Index heads, Index key_heads, Index head_dim,
                           Index hidden_dim, Index vocabulary, Index experts = 0) {
  DecoderModel m;
  m.num_blocks = blocks, m.model_dim = model_dim, m.heads = heads, m.key_heads = key_heads;
  m.head_dim = head_dim, m.hidden_dim = hidden_dim, m.vocabulary = vocabulary;
  m.experts = experts, m.top_k = experts > 0 ? 2 : 0;
  m.how = Arithmetic::real(head_dim);
  return m;
}

std::vector<TestCase> cases_of_decoders(const Accepts& accepts) {
  std::vector<TestCase> all;
  auto add = [&](const DecoderModel& model, Index length, Index batch) {
    if (auto made = accepted<Decoder>(model, &DecoderModel::num_blocks, accepts, length))
      all.push_back({made, batch});
  };
  DecoderModel windowed = decoder_model(2, 10, 6, 2, 2, 7, 13);
  windowed.window = 3, windowed.is_tied = true, windowed.has_bias = true;
  add(decoder_model(1, 6, 3, 3, 2, 5, 11), 5, 3);
  add(windowed, 7, 2);
  add(decoder_model(2, 8, 4, 2, 4, 5, 7, 5), 3, 5);
  add(decoder_model(5, 12, 6, 3, 4, 9, 17), 11, 3);
  return all;
}

/// All divided sizes are multiples of the number of devices, so all slices have the same shape. The fewest
/// blocks that a variant accepts, since each block adds calls in which tests plant faults.
std::vector<ExactProblem> live_decoders(Index n, const Accepts& accepts) {
  std::vector<ExactProblem> all;
  for (Index experts : {Index{0}, n > 2 ? n : 2 * n}) {
    DecoderModel m = decoder_model(1, 2 * n, n, n, 2, 2 * n, 4 * n, experts);
    while (m.num_blocks < n && !accepts(Decoder(m, 2 * n))) ++m.num_blocks;
    const Decoder made(m, 2 * n);
    if (!accepts(made)) continue;
    // With other seeds, an expert is not chosen on some device, or more than 10 % of a gradient are 0.
    const ExactProblem problem = made.exact_problem(n, experts > 0 ? 3378 : 9);
    all.push_back(live(problem, static_cast<int>(n), m.vocabulary, 0, problem.input.shape[1] / 2));
  }
  return all;
}

T5Model t5_model_of(Index encoder_blocks, Index decoder_blocks, Index model_dim, Index heads, Index head_dim,
                    Index hidden_dim, Index vocabulary) {
  T5Model m;
  m.encoder_blocks = encoder_blocks, m.decoder_blocks = decoder_blocks, m.model_dim = model_dim;
  m.heads = heads, m.head_dim = head_dim, m.hidden_dim = hidden_dim, m.vocabulary = vocabulary;
  m.buckets = 8, m.max_distance = 7;
  return m;
}

std::vector<TestCase> cases_of_t5(const Accepts& accepts) {
  std::vector<TestCase> all;
  auto add = [&](T5Model model, Index source_length, Index length, Index batch) {
    if (model.is_tied) model.how.logit_scale = 1 / std::sqrt(static_cast<float>(model.model_dim));
    if (auto made = accepted<T5>(model, &T5Model::decoder_blocks, accepts, source_length, length))
      all.push_back({made, batch});
  };
  T5Model gated = t5_model_of(2, 1, 10, 5, 2, 7, 13), deep = t5_model_of(3, 2, 12, 6, 3, 7, 17);
  gated.hidden = Hidden::geglu, gated.is_tied = false;
  deep.buckets = 9, deep.is_tied = false;
  add(t5_model_of(1, 1, 6, 3, 3, 5, 11), 5, 3, 3);
  add(gated, 4, 7, 2);
  add(deep, 11, 9, 3);
  return all;
}

/// As live_decoders.
std::vector<ExactProblem> live_t5(Index n, const Accepts& accepts) {
  std::vector<ExactProblem> all;
  for (Hidden hidden : {Hidden::relu, Hidden::geglu}) {
    T5Model m = t5_model_of(1, 1, 2 * n, n, 2, 2 * n, 4 * n);
    m.hidden = hidden, m.is_tied = hidden == Hidden::relu;
    while (m.decoder_blocks < n && !accepts(T5(m, 2 * n, 2 * n))) ++m.encoder_blocks, ++m.decoder_blocks;
    const T5 made(m, 2 * n, 2 * n);
    if (!accepts(made)) continue;
    const ExactProblem problem =
        made.exact_problem(n, 4);  // with some others, more than 10 % of a gradient is 0
    const Index labels = problem.input.shape[1] - as_t5(*problem.workload).length();
    all.push_back(live(problem, static_cast<int>(n), m.vocabulary, 1, labels));
  }
  return all;
}
/// @}

bool is_mixture(const WorkloadKind& kind) {
  return kind.name() == "mixture";
}
bool is_switch(const WorkloadKind& kind) {
  return &kind == &mixture(1);
}

}  // namespace

std::vector<TestCase> cases_of(const WorkloadKind& kind, const Accepts& accepts) {
  if (is_mixture(kind)) return cases_of_mixtures(is_switch(kind), accepts);
  if (!kind.has_tokens()) return cases_of_stacks(kind, accepts);
  return kind.reads_sources() ? cases_of_t5(accepts) : cases_of_decoders(accepts);
}

TestCase streamed_case_of(const WorkloadKind& kind, const Accepts& accepts) {
  constexpr Index rows = 11;
  if (is_mixture(kind)) {  // without capacity, since a row's result would depend on others
    const RoutingRule rule{is_switch(kind) ? 1 : 2, std::nullopt, 0.01, 0};
    return {std::make_shared<Mixture>(MixtureModel{{3, 5, 7}, 4}, rule), rows};
  }
  if (!kind.has_tokens()) return {kind.sized(depths(kind, accepts, {3}, {1}).front(), 5, 7), rows};
  if (kind.reads_sources())
    return {accepted<T5>(t5_model_of(1, 1, 6, 2, 2, 5, 11), &T5Model::decoder_blocks, accepts, Index{4},
                         Index{5}),
            rows};
  for (Index experts : {0, 5})  // with experts if the variant accepts only a mixture
    if (auto made = accepted<Decoder>(decoder_model(2, 6, 2, 1, 2, 5, 11, experts), &DecoderModel::num_blocks,
                                      accepts, Index{5}))
      return {made, rows};
  throw Error(Code::internal, "streamed case: expected a decoder that the variant accepts, given none");
}

std::vector<ExactProblem> live_problems_of(const WorkloadKind& kind, int devices, const Accepts& accepts) {
  if (kind.has_tokens())
    return kind.reads_sources() ? live_t5(devices, accepts) : live_decoders(devices, accepts);
  if (&kind == &mlp()) return live_stacks(devices, accepts);
  std::vector<ExactProblem> all;
  if (!is_mixture(kind)) return all;
  for (Index layers : {2, 3, 6}) {
    ExactProblem problem = live_mixture(layers, is_switch(kind) ? 1 : 2, devices);
    if (accepts(*problem.workload)) all.push_back(std::move(problem));
  }
  return all;
}

/// Integer steps make sparse weights dense, and wider or deeper networks would then exceed 2^24. The weights of a
/// transformer stay small, and each of its norms rounds to the grid again.
bool stays_exact(const Workload& network) {
  if (network.kind().has_tokens()) return true;
  Index widest = 0;
  for (const Parameter& p : network.parameters()) widest = std::max(widest, std::ranges::max(p.shape));
  const Index layers = network.num_layers();
  return layers <= 16 && widest <= (layers > 6 ? 2 : layers > 2 ? 8 : 16);
}

namespace {

/// ((a - b) mod 5) - 2.
float difference_modulo_5(float a, float b) {
  const auto difference = static_cast<std::int64_t>(a) - static_cast<std::int64_t>(b);
  return static_cast<float>(((difference % 5) + 5) % 5 - 2);
}

}  // namespace

void integer_step(ExactProblem& problem, const Solution& gradients, Momenta* momenta) {
  const float unit = problem.workload->gradient_unit();
  for (auto& [name, weights] : problem.weights) {
    if (problem.workload->must_stay(name)) continue;
    const std::vector<float>& gradient = gradients.at(name).values;
    std::vector<float> step = gradient;
    for (float& value : step) value /= unit;
    if (momenta != nullptr) {
      std::vector<float>& momentum = (*momenta)[name];
      momentum.resize(gradient.size());
      for (std::size_t i = 0; i < step.size(); ++i)
        step[i] = momentum[i] = difference_modulo_5(momentum[i], step[i]);
    }
    for (std::size_t i = 0; i < step.size(); ++i)
      weights.values[i] = difference_modulo_5(weights.values[i], step[i]);
  }
}

}  // namespace shard::testing
