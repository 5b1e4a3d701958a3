/// Compares the unsharded networks with finite differences, and with results that NumPy computed when the tests were
/// built (by shardbook-check export). Otherwise, all engines could agree on a wrong result.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "01_single_device/single_device.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mixture/mixture.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "engine/workloads/t5/t5.hpp"
#include "tests/equivalence/random_run.hpp"

namespace shard::testing {

namespace {

constexpr float wide_step = 0x1p-7F;  // of a central difference

/// The objective Σ output · weight, of these parameters, and of this input unless they have another one.
double objective(ShardedEngine& engine, Tensors numbers, const HostTensor& input, const HostTensor& dout) {
  InferenceMode no_tape;
  const auto other = numbers.extract(Gradients::input_grad);
  const HostTensor& x = other ? other.mapped() : input;
  engine.load_checkpoint(*host_checkpoint(numbers, "test"));
  const std::vector<float> out = engine.forward(Tensor::from_host(x.shape, x.values)).local().to_host();
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += double{out[i]} * dout.values[i];
  return sum;
}

/// Checks every element of every gradient, and of dL/dx if there is one: two central differences, extrapolated to a
/// step of 0 (Richardson). The error is below the difference of the two, unless a ReLU or a choice changes within a
/// step. To this we add a bound of rounding.
void check_gradients(const Workload& network, std::unique_ptr<ShardedEngine> engine, bool has_input_grad) {
  const HostTensor input = network.random_input(2, 5);
  const HostTensor dout = random_tensor(network.output_shape(2), "weight of each loss", 3);
  Tensors numbers;
  for (const Parameter& p : network.parameters()) numbers[p.name] = random_tensor(p.shape, p.name, 3);
  if (has_input_grad) numbers[Gradients::input_grad] = input;
  engine->want_input_grad(has_input_grad);
  const Bounded gradients = with_bounds(numbers, longest_sum(network, dout.shape[0]), [&](Tensors given) {
    const auto other = given.extract(Gradients::input_grad);
    engine->load_checkpoint(*host_checkpoint(given, "test"));
    Results results = run_step(*engine, other ? other.mapped() : input, dout);
    Tensors all = {{"output", results.output.at(0).rows}};
    for (const auto& [name, gradient] : results.gradients)
      all[name] = {gradient.local().shape(), gradient.local().to_host()};
    return all;
  });
  CHECK(gradients.values.size() == numbers.size() + 1);
  double noise = 0;  // of the objective, by rounding
  for (std::size_t i = 0; i < dout.values.size(); ++i)
    noise += std::pow(double{dout.values[i]} * gradients.bounds.at("output").values[i], 2);
  noise = std::sqrt(noise);
  for (auto& [name, w] : numbers)
    for (std::size_t i = 0; i < w.values.size(); ++i) {
      CAPTURE(network.describe(), name, i);
      auto central = [&, &x = w.values[i]](float step) {
        const float here = x;
        x = here + step;
        const double above = objective(*engine, numbers, input, dout), upper = x;
        x = here - step;
        const double slope = (above - objective(*engine, numbers, input, dout)) / (upper - x);
        x = here;
        return slope;
      };
      const double wide = central(wide_step), narrow = central(wide_step / 2);
      const double error =
          std::abs(wide - narrow) + 2 * noise / wide_step + gradients.bounds.at(name).values[i];
      CHECK(std::abs(gradients.values.at(name).values[i] - (4 * narrow - wide) / 3) <= error);
      CHECK(error < 0.02);  // gradients are about 1
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

TEST_CASE("the gradients of chapter 01, and of unsharded networks, are finite differences") {
  check_gradients(Mlp({4, 5, 3}), std::make_unique<single_device::SingleDevice>(group()), true);
  auto check = [](const Workload& network, bool has_input_grad = false) {
    check_gradients(network, network.unsharded(group()), has_input_grad);
  };
  for (Index top_k : {1, 2}) check(Mixture({{2, 5, 3}, 3}, {top_k, std::nullopt, 0, 0}), true);
  for (Index experts : {0, 3}) check(Decoder(tiny_decoder(experts), 4));
  for (Hidden hidden : {Hidden::relu, Hidden::geglu}) check(T5(tiny_t5(hidden), 5, 4));
}

namespace {

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

  static std::filesystem::path folder() { return SHARDBOOK_GOLDEN_VECTORS; }
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
  /// The unsharded network's results for these weights and the problem's batch, under NumPy's names.
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
    if (said["kind"] != "exact" && said["kind"] != "real")
      continue;  // problems of optimizers have no gradients
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
  CHECK(held == 29);
}

}  // namespace shard::testing
