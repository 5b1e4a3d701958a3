#include "verdicts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "causes.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/proof/compare.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard::layer_cuts {

namespace {

Tensor on_device(const HostTensor& t) {
  return Tensor::from_host(t.shape, t.values);
}

}  // namespace

std::map<std::string, Placed> placed_results(Layer& layer, const LayerCase& of) {
  layer.load_checkpoint(*host_checkpoint(of.weights, of.name));
  layer.want_input_grad(true);
  const Placement layout = layer.input_layout();
  Tensor x = on_device(of.input);
  if (layout.kind == Placement::Kind::sharded) {
    const Range mine = part(x.extent(layout.axis), layer.num_devices(), layer.device_id());
    x = slice(x, layout.axis, mine.begin, mine.end);
  }
  Placed output = layer.forward(std::move(x));
  Gradients gradients = layer.backward(output.slice_of(on_device(of.output_grad)));
  std::map<std::string, Placed> results;
  results.emplace("output", std::move(output));
  for (auto& [name, gradient] : gradients) results.emplace(name, std::move(gradient));
  return results;
}

Results results_of(const LayerCase& layer, Communicator& alone, Arithmetic arithmetic) {
  Results results;
  const std::unique_ptr<Layer> whole = layer.whole(alone, arithmetic);
  for (auto& [name, placed] : placed_results(*whole, layer)) {
    std::vector<float> values = placed.local().to_host();
    const auto zeros = static_cast<std::size_t>(std::ranges::count(values, 0.0F));
    if (!layer.has_zeros && 10 * zeros > values.size())
      throw Error(Code::internal, "{}: expected a {} of at most 10 % zeros, given {} of {}", layer.name, name,
                  zeros, values.size());
    results[name] = {placed.global_shape(), std::move(values)};
  }
  return results;
}

Finding find(const LayerCase& layer, const Claim& claim, const Results& expected, Communicator& group,
             Arithmetic arithmetic) {
  const std::unique_ptr<Layer> cut = claim.make(group, arithmetic);
  ledger().reset();
  note_section(fmt::format("{}, {}", layer.name, claim.axis), true);
  const std::map<std::string, Placed> results = placed_results(*cut, layer);
  const Traffic sent = ledger().traffic();
  note_section("comparison", false);
  Finding finding;
  bool is_equal = true;
  for (const auto& [name, wanted] : expected) {
    const auto found = results.find(name);
    if (found == results.end())
      throw Error(Code::differs, "{}, {}: {}: expected, given none", layer.name, claim.axis, name);
    const Comparison c = compare(name, found->second, wanted);
    finding.relative = std::max(finding.relative, c.relative);
    is_equal = is_equal && c.is_equal();
    if (finding.difference.empty() && !c.is_equal())
      finding.difference =
          compare(name, found->second, wanted, likely_cause(layer, claim, results)).first_difference;
  }
  const std::vector<Index> differences =
      group.exchange("differences", std::bit_cast<Index>(finding.relative));
  for (Index bits : differences) finding.relative = std::max(finding.relative, std::bit_cast<double>(bits));
  if (claim.sends) {
    const Traffic form = claim.sends(group.num_devices(), group.device_id());
    finding.bytes = gather_figure(group, "bytes", sent.bytes, form.bytes);
    finding.messages = gather_figure(group, "messages", sent.messages, form.messages);
  }
  const bool all_equal = std::ranges::min(group.exchange("equal", is_equal ? 1 : 0)) == 1;
  const bool needs_others = group.num_devices() > 1;
  finding.is_as_claimed = claim.verdict == Verdict::differs
                              ? std::isfinite(finding.relative) && (!all_equal || !needs_others)
                              : all_equal && finding.bytes.is_met() && finding.messages.is_met();
  return finding;
}

}  // namespace shard::layer_cuts
