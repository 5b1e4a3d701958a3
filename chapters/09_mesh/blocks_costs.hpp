#pragma once

#include <vector>

#include "product_costs.hpp"

namespace shard::meshes {

/// A step with blocks, of the products that `Form` describes. `input` and `output` are a device's rows of the
/// input and the output with all columns, as the loss reads them.
template <class Form>
Costs blocks_costs(const MlpSetting& s, const MeshShape& mesh) {
  std::vector<BlockLayer> layers;
  for (Index l = 0; l < s.model.num_layers; ++l) layers.emplace_back(s, mesh, l);
  const BlockLayer &first = layers.front(), &last = layers.back();
  const Index input = first.b * first.K, output = last.b * last.N;
  Index P = 0;
  for (const BlockLayer& z : layers) P += z.k_rows * z.n;
  Costs costs;
  Peak peak;
  auto product = [&](const ProductCosts& of, Index beside) {
    for (const auto& [what, traffic] : of.sent) costs.send_along(what.first, what.second, traffic);
    costs.flops += of.flops;
    peak.at({beside, of.most.bytes() / bytes_per_element});
  };
  Index inputs = 0;
  peak.at({P, input, first.b * first.k});  // the input with all columns, and cut
  for (const BlockLayer& z : layers) {
    inputs += z.b * z.k;
    product(Form::forward(z), P + inputs);
  }
  costs.send_along("columns", Collective::all_gather,
                   ring_all_gather(slices(last.N, last.b, last.columns.devices), last.columns.place));
  peak.at({P, inputs, output, output});  // gathered, or with the loss's gradient
  peak.at({P, inputs, output, last.b * last.n});
  Index dw = 0;
  for (Index l = s.model.num_layers - 1; l >= 0; --l) {
    const BlockLayer& z = layers[static_cast<std::size_t>(l)];
    const Index d = z.b * z.n;
    product(Form::for_weights(z), P + inputs + d + dw);
    dw += z.k_rows * z.n;
    if (l > 0 || s.input_grad) product(Form::for_input(z), P + inputs + d + dw);
    inputs -= z.b * z.k;
  }
  costs.parameter_bytes = P * bytes_per_element;
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard::meshes
