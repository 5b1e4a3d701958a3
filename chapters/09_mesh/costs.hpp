#pragma once

#include "engine/mesh_shape.hpp"
#include "engine/workloads/mlp.hpp"

namespace shard::meshes {

/// A device's place on an axis, and the number of devices along it.
struct Along {
  int devices, place;

  Along(const MeshShape& mesh, const std::string& axis, int device)
      : devices(mesh.size(axis)), place(mesh.place(axis, device)) {}
  Index part_of(Index extent) const { return part(extent, devices, place).size(); }
};

/// Extents and sizes, in elements, that this chapter's closed forms use. b is this device's part of the rows,
/// over the axis data, and f its part of the hidden width, over the axis tensor.
struct DataTensorSizes {
  Along data, tensor;
  Index b, D, f;
  Index layers;

  DataTensorSizes(const MlpSetting& s, const MeshShape& mesh)
      : data(mesh, "data", s.device),
        tensor(mesh, "tensor", s.device),
        b(data.part_of(s.batch)),
        D(s.model.model_dim),
        f(tensor.part_of(s.model.hidden_dim)),
        layers(s.model.num_layers) {}

  Index weights() const { return D * f; }  ///< of this device's part of a layer
};

/// The most that a device holds. x = b D is a block's input and h = b f this device's part of its hidden
/// activation. w = D f is its part of either matrix of a block, P its part of all.
inline Peak data_tensor_peak(const MlpSetting& s, const DataTensorSizes& z) {
  const Index x = z.b * z.D, h = z.b * z.f, w = z.weights();
  const Index P = z.layers * w;
  const Index of_tensor = ring_buffer(x, z.tensor.devices), of_data = ring_buffer(w, z.data.devices);
  Index kept = z.layers / 2 * (x + h);
  Peak peak;
  peak.at({P, kept, x, std::max(x, of_tensor)});  // the output being reduced, or with the loss's gradient
  Index dw = 0;
  for (Index i = z.layers / 2 - 1; i >= 0; --i) {
    dw += 2 * w;
    peak.at({P, kept, x, h, dw, of_data});  // the second gradient of the block being reduced
    if (i > 0 || s.input_grad) peak.at({P, kept, x, h, dw, x, of_tensor});
    kept -= x + h;
  }
  return peak;
}

/// `data-tensor`: what one device sends, computes and holds. Over the axis tensor it sends what chapter 03
/// sends for b rows. Over the axis data it sends what chapter 02 sends for a device's part of the weights.
inline Costs data_tensor_costs(const MlpSetting& s, const MeshShape& mesh) {
  const DataTensorSizes z(s, mesh);
  Costs costs;
  costs.parameter_bytes = z.layers * z.weights() * bytes_per_element;
  costs.flops = (3 * z.layers - (s.input_grad ? 0 : 1)) * product_flops(z.b, z.D, z.f);
  const Index reductions = z.layers - (s.input_grad ? 0 : 1);  // of activations: two for each block
  costs[Collective::all_reduce] = reductions * ring_all_reduce(z.b * z.D, z.tensor.devices, z.tensor.place) +
                                  z.layers * ring_all_reduce(z.weights(), z.data.devices, z.data.place);
  costs.peak_bytes = data_tensor_peak(s, z).bytes();
  return costs;
}

}  // namespace shard::meshes
