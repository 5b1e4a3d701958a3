///     mpirun --oversubscribe -n 3 build/course/layers FOLDER OUT
///
/// Lets a layer of chapter 07 go forward and backward, cut in a way that it is right in, or whole on one device.
/// FOLDER has job.json, {"layer": "LayerNorm", "axis": "features", "seed": 5}. Each tensor has the elements of
/// the chapter's, in an order that the seed gives, so that sums stay exact. One device writes what comes in, too.

#include <nlohmann/json.hpp>

#include "07_layers/verdicts.hpp"
#include "engine/files/json_file.hpp"
#include "engine/workloads/random.hpp"
#include "parts.hpp"

namespace shard::course {

namespace {

using layer_cuts::Claim;
using layer_cuts::LayerCase;

/// Its elements in another order.
void shuffle(HostTensor& t, std::uint64_t seed, const std::string& name) {
  const CounterRandom random(seed, name);
  for (std::size_t i = t.values.size(); i > 1; --i) std::swap(t.values[i - 1], t.values[random.bits(i) % i]);
}

LayerCase case_of(const nlohmann::json& job) {
  for (LayerCase& layer : layer_cuts::all_layers()) {
    if (layer.name != job.at("layer")) continue;
    const std::uint64_t seed = job.at("seed");
    shuffle(layer.input, seed, "input");
    shuffle(layer.output_grad, seed, "output_grad");
    for (auto& [name, weights] : layer.weights) shuffle(weights, seed, name);
    return layer;
  }
  throw Error(Code::file, "job.json: expected a layer of chapter 07, given " + job.at("layer").dump());
}

/// The right cut along this axis.
const Claim& claim_of(const LayerCase& layer, const std::string& axis) {
  for (const Claim& claim : layer.claims)
    if (claim.axis == axis && claim.verdict != layer_cuts::Verdict::differs) return claim;
  throw Error(Code::file, "job.json: expected an axis of " + layer.name + ", given " + axis);
}

/// What comes into the layer, for the grader: from that it computes what wrong versions would make of it.
void add_given(Parts& parts, const LayerCase& layer) {
  auto whole = [](const HostTensor& t) { return Part{Shape(t.shape.size(), 0), t}; };
  parts.add("given/input", whole(layer.input));
  parts.add("given/output_grad", whole(layer.output_grad));
  for (const auto& [name, weights] : layer.weights) parts.add("given/" + name, whole(weights));
}

}  // namespace

void run(Communicator& world, const std::string& folder, const std::string& out) {
  const nlohmann::json job = read_json_object(folder + "/job.json");
  const LayerCase layer = case_of(job);
  const Claim& claim = claim_of(layer, job.at("axis"));
  const bool is_whole = world.num_devices() == 1;
  const auto how = layer_cuts::grid();
  const std::unique_ptr<layer_cuts::Layer> cut = is_whole ? layer.whole(world, how) : claim.make(world, how);
  ledger().reset();
  const std::map<std::string, Placed> results = layer_cuts::placed_results(*cut, layer);
  Parts parts;
  parts.add_figures(ledger().traffic());
  for (const auto& [name, placed] : results) parts.add(name, placed);
  if (is_whole) add_given(parts, layer);
  parts.write(out, world.device_id());
}

}  // namespace shard::course
