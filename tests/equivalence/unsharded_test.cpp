/// What the unsharded networks of tokens and of experts are held against, so that all engines cannot agree on
/// something wrong: finite differences, and vectors that NumPy made (golden/, by ./tests/equivalence/export).

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/files/safetensors/safetensors.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mixture/mixture.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "engine/workloads/t5/t5.hpp"
#include "tests/equivalence/random_run.hpp"

namespace shard::testing {

namespace {

/// The objective Σ loss · weight over a network's tokens.
double objective(ShardedEngine& engine, const Tensors& weights, const HostTensor& input,
                 const HostTensor& dloss) {
  InferenceMode no_tape;
  engine.load_checkpoint(*host_checkpoint(weights, "test"));
  const std::vector<float> losses =
      engine.forward(Tensor::from_host(input.shape, input.values)).local().to_host();
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) sum += double{losses[i]} * dloss.values[i];
  return sum;
}

/// Checks every element of every gradient: two central differences, extrapolated to a step of 0 (Richardson).
/// What is left of the error is below their difference, unless a ReLU or a choice turns. The rest is rounding.
void check_gradients(const Workload& network) {
  const HostTensor input = network.random_input(2, 5),
                   dloss = random_tensor(network.output_shape(2), "weight of each loss", 3);
  Tensors weights;
  for (const Parameter& p : network.parameters()) weights[p.name] = random_tensor(p.shape, p.name, 3);
  const std::unique_ptr<ShardedEngine> engine = network.unsharded(group());
  const Bounded gradients =
      with_bounds(weights, longest_sum(network, dloss.shape[0]), [&](const Tensors& given) {
        engine->load_checkpoint(*host_checkpoint(given, "test"));
        Results results = run_step(*engine, input, dloss);
        Tensors all = {{"output", results.output.at(0).rows}};
        for (const auto& [name, gradient] : results.gradients)
          all[name] = {gradient.local().shape(), gradient.local().to_host()};
        return all;
      });
  CHECK(gradients.values.size() == weights.size() + 1);
  double noise = 0;  // of the objective
  for (std::size_t i = 0; i < dloss.values.size(); ++i)
    noise += std::pow(double{dloss.values[i]} * gradients.bounds.at("output").values[i], 2);
  noise = std::sqrt(noise);
  constexpr float wide_step = 0x1p-7F;
  for (auto& [name, w] : weights)
    for (std::size_t i = 0; i < w.values.size(); ++i) {
      CAPTURE(network.describe(), name, i);
      auto central = [&, &x = w.values[i]](float step) {
        const float here = x;
        x = here + step;
        const double above = objective(*engine, weights, input, dloss), upper = x;
        x = here - step;
        const double slope = (above - objective(*engine, weights, input, dloss)) / (upper - x);
        x = here;
        return slope;
      };
      const double wide = central(wide_step), narrow = central(wide_step / 2);
      const double error =
          std::abs(wide - narrow) + 2 * noise / wide_step + gradients.bounds.at(name).values[i];
      CHECK(std::abs(gradients.values.at(name).values[i] - (4 * narrow - wide) / 3) <= error);
      CHECK(error < 0.02);  // of gradients of about 1
    }
}

DecoderModel tiny_decoder(Index experts) {
  DecoderModel m;
  m.num_blocks = 2, m.model_dim = 4, m.heads = 4, m.key_heads = 2, m.head_dim = 2, m.hidden_dim = 3;
  m.vocabulary = 5, m.window = 3;
  m.experts = experts, m.top_k = experts > 0 ? 2 : 0, m.is_tied = experts > 0;
  m.how = Arithmetic::real(m.head_dim);
  return m;
}

T5Model tiny_t5(Hidden hidden) {
  T5Model m;
  m.encoder_blocks = 2, m.decoder_blocks = 2, m.model_dim = 4, m.heads = 2, m.head_dim = 2, m.hidden_dim = 3;
  m.vocabulary = 5, m.buckets = 6, m.max_distance = 4;
  m.hidden = hidden, m.is_tied = hidden == Hidden::relu;
  if (m.is_tied) m.how.logit_scale = 1 / std::sqrt(static_cast<float>(m.model_dim));
  return m;
}

}  // namespace

TEST_CASE("the gradients of unsharded networks of tokens are finite differences") {
  check_gradients(Decoder(tiny_decoder(0), 4));
  check_gradients(Decoder(tiny_decoder(3), 4));
  for (Hidden hidden : {Hidden::relu, Hidden::geglu}) check_gradients(T5(tiny_t5(hidden), 5, 4));
}

namespace {

/// One of the problems that the suite for foreign implementations has.
class Golden {
 public:
  explicit Golden(const nlohmann::json& said) : said_(said) {
    constexpr std::pair<const char*, const char*> options[] = {{"head_dim", "--head-dim"},
                                                               {"top_k", "--top-k"},
                                                               {"window", "--window"},
                                                               {"rope_base", "--rope-base"},
                                                               {"norm_epsilon", "--epsilon"},
                                                               {"max_distance", "--max-distance"},
                                                               {"capacity_factor", "--capacity-factor"},
                                                               {"aux_weight", "--aux-weight"}};
    Options given;
    for (const auto& [name, option] : options)
      if (said.contains(name))
        given.set(option, said[name].is_string() ? said[name].get<std::string>() : said[name].dump());
    network = kind().read(*open("params"), given);
    if (!is_on_grid()) return;
    DecoderModel model = as_decoder(*network).model();
    model.how = exact::grid_of(model.model_dim, model.head_dim);
    network = std::make_shared<Decoder>(model, said["length"].get<Index>());
  }

  static std::filesystem::path folder() {
    return std::filesystem::path(Characters::default_path()).parent_path() / "../../tests/equivalence/golden";
  }
  std::string name() const { return said_["name"]; }
  bool is_exact() const { return said_["kind"] == "exact"; }
  Index longest_sum() const {
    const Index rows = said_["batch_size"].get<Index>() * said_.value("length", Index{1});
    return testing::longest_sum(*network, rows);
  }
  Tensors tensors(const std::string& file) const {
    const std::unique_ptr<Checkpoint> stored = open(file);
    Tensors all;
    for (const std::string& tensor : stored->names())
      all[tensor] = {stored->shape(tensor), stored->read(tensor, all_of(stored->shape(tensor)))};
    return all;
  }
  /// What the unsharded network makes of these weights and the problem's batch, by the names of what NumPy has made.
  Tensors results(const Tensors& weights) const {
    if (is_on_grid()) return results_on_grid(weights);
    const std::unique_ptr<GivenBatch> batch = network->given_batch(open("batch"), [](Index) { return ""; });
    const std::unique_ptr<ShardedEngine> engine = network->unsharded(group());
    engine->load_checkpoint(*host_checkpoint(weights, name()));
    engine->want_input_grad(true);
    batch->watch(*engine);
    const Gradients gradients = engine->forward_backward(
        batch->input({0, batch->rows()}),
        [&](const Tensor& out, Index first_row) { return batch->output_grad(out, first_row); });
    Tensors all = batch->results(group());
    for (const auto& [tensor, gradient] : gradients)
      all[tensor] = {gradient.local().shape(), gradient.local().to_host()};
    return all;
  }

  std::shared_ptr<const Workload> network;

 private:
  std::unique_ptr<Checkpoint> open(const std::string& file) const {
    return open_checkpoint((folder() / name() / (file + ".safetensors")).string());
  }
  const WorkloadKind& kind() const {
    if (said_["workload"] == "decoder") return decoder();
    if (said_["workload"] == "t5") return t5();
    if (said_["workload"] == "mlp") return mlp();
    REQUIRE(said_["workload"] == "mixture");
    return mixture(said_["top_k"].get<Index>());
  }
  bool is_on_grid() const { return is_exact() && said_["workload"] == "decoder"; }
  /// A batch has ids and labels, (B, S), and the gradient of each token's loss.
  Tensors results_on_grid(const Tensors& weights) const {
    const Tensors batch = tensors("batch");
    const HostTensor &ids = batch.at("input_ids"), &labels = batch.at("labels");
    const Index sequences = ids.shape[0], length = ids.shape[1];
    HostTensor input{{sequences, 2 * length}, {}};
    for (Index b = 0; b < sequences; ++b)
      for (const HostTensor* of : {&ids, &labels})
        input.values.insert(input.values.end(), of->values.begin() + b * length,
                            of->values.begin() + (b + 1) * length);
    const HostTensor dloss{{sequences * length, 1}, batch.at("losses_grad").values};
    Tensors all = solve({network, input, dloss, weights}, group());
    all["losses"] = all.extract("output").mapped();
    return all;
  }

  nlohmann::json said_;
};

}  // namespace

TEST_CASE(
    "the unsharded networks make of the suite's problems what NumPy makes: bit for bit, or within rounding") {
  std::ifstream file(Golden::folder() / "manifest.json");
  const nlohmann::json manifest = nlohmann::json::parse(file);
  int held = 0;
  for (const nlohmann::json& said : manifest["problems"]) {
    if (said["kind"] != "exact" && said["kind"] != "real") continue;  // optimizers' are those of engines
    const Golden problem(said);
    const Tensors weights = problem.tensors("params"), expected = problem.tensors("expected");
    const auto results = [&](const Tensors& of) { return problem.results(of); };
    const Bounded given = problem.is_exact() ? Bounded{results(weights), {}}
                                             : with_bounds(weights, problem.longest_sum(), results);
    CHECK(given.values.size() == expected.size());
    CHECK(given.widest() < 0x1p-7);
    for (const auto& [name, want] : expected) {
      CAPTURE(problem.name(), name);
      const HostTensor& have = given.values.at(name);
      REQUIRE(have.values.size() == want.values.size());
      if (problem.is_exact())
        CHECK(have.values == want.values);
      else
        CHECK(worst_in_bounds(have, want, given.bounds.at(name)) <= 1);
    }
    ++held;
  }
  CHECK(held == 22);
}

}  // namespace shard::testing
