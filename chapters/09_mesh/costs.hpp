#pragma once

#include "engine/mesh_shape.hpp"
#include "engine/workloads/mlp.hpp"

namespace shard::meshes {

/// A device's place on an axis, and the number of devices along it.
struct Along {
  std::string name;
  int devices, place;

  Along(const MeshShape& mesh, const std::string& axis, int device)
      : name(axis), devices(mesh.size(axis)), place(mesh.place(axis, device)) {}
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

  Index weights() const { return D * f; }  ///< of this device's part of a layer over tensor
  /// What it owns of that in `fsdp-tensor`: its part of the D, over data.
  Index owned() const { return data.part_of(D) * f; }
  /// Beside what it gathers over data along columns, or scatters: a copy in which parts are contiguous.
  Index columns_buffer() const { return data.devices == 1 ? 0 : weights(); }
  /// A reduce-scatter's buffer over data along rows: the largest part.
  Index rows_buffer() const { return data.devices == 1 ? 0 : part(D, data.devices, 0).size() * f; }
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
  costs.send_along("tensor", Collective::all_reduce,
                   reductions * ring_all_reduce(z.b * z.D, z.tensor.devices, z.tensor.place));
  costs.send_along("data", Collective::all_reduce,
                   z.layers * ring_all_reduce(z.weights(), z.data.devices, z.data.place));
  costs.peak_bytes = data_tensor_peak(s, z).bytes();
  return costs;
}

/// The most that a device holds in `fsdp-tensor`. W = D f is its part of a matrix over tensor, which it
/// gathers over data; it owns the part `owned` of that.
inline Peak fsdp_tensor_peak(const MlpSetting& s, const DataTensorSizes& z) {
  const Index x = z.b * z.D, h = z.b * z.f, W = z.weights(), P = z.layers * z.owned();
  const Index of_tensor = ring_buffer(x, z.tensor.devices);
  Index kept = 0;
  Peak peak;
  for (Index i = 0; i < z.layers / 2; ++i) {
    kept += x + h;
    peak.at({P, kept, W, std::max(x, z.columns_buffer())});
    peak.at({P, kept, x, of_tensor});
  }
  peak.at({P, kept, x, x});  // the output, and the loss's gradient
  Index dw = 0;
  for (Index i = z.layers / 2 - 1; i >= 0; --i) {
    peak.at({P, kept, x, dw, W, z.columns_buffer()});
    dw += z.owned();
    peak.at({P, kept, x, dw, W, std::max(h, z.columns_buffer())});
    peak.at({P, kept, x, dw, h, W, z.rows_buffer()});
    dw += z.owned();
    if (i > 0 || s.input_grad) {
      peak.at({P, kept, x, dw, h, W, x});
      peak.at({P, kept, x, dw, h, x, of_tensor});
    }
    kept -= x + h;
  }
  return peak;
}

/// `fsdp-tensor`: over tensor the same as `data-tensor`. Over data, a device's part of each matrix is
/// gathered forward, and backward where dL/da is computed, and its gradient is reduce-scattered.
inline Costs fsdp_tensor_costs(const MlpSetting& s, const MeshShape& mesh) {
  const DataTensorSizes z(s, mesh);
  Costs costs;
  costs.parameter_bytes = z.layers * z.owned() * bytes_per_element;
  costs.flops = (3 * z.layers - (s.input_grad ? 0 : 1)) * product_flops(z.b, z.D, z.f);
  const Index backward = z.layers - (s.input_grad ? 0 : 1);  // products with weights
  costs.send_along("tensor", Collective::all_reduce,
                   backward * ring_all_reduce(z.b * z.D, z.tensor.devices, z.tensor.place));
  const std::vector<Index> parts = slices(z.D, z.f, z.data.devices);
  costs.send_along("data", Collective::all_gather,
                   (z.layers + backward) * ring_all_gather(parts, z.data.place));
  costs.send_along("data", Collective::reduce_scatter, z.layers * ring_reduce_scatter(parts, z.data.place));
  costs.peak_bytes = fsdp_tensor_peak(s, z).bytes();
  return costs;
}

/// Extents and sizes, in elements, of `hsdp`. b is this device's part of the rows, over both axes.
struct HsdpSizes {
  Along replica, shard;
  const Model& m;
  Index b;

  HsdpSizes(const MlpSetting& s, const MeshShape& mesh)
      : replica(mesh, "replica", s.device),
        shard(mesh, "shard", s.device),
        m(s.model),
        b(shard.part_of(replica.part_of(s.batch))) {}

  Index a(Index l) const { return b * m.width(l); }  ///< the input of layer l
  std::vector<Index> parts(Index l) const { return slices(m.width(l), m.width(l + 1), shard.devices); }
  Index owned(Index l) const { return parts(l)[static_cast<std::size_t>(shard.place)]; }
  Index scatter_buffer(Index l) const { return shard.devices == 1 ? 0 : parts(l)[0]; }
};

/// `hsdp`: over shard what `zero3` of chapter 06 sends, for each layer; over replica an all-reduce of what
/// this device owns of the gradient.
inline Costs hsdp_costs(const MlpSetting& s, const MeshShape& mesh) {
  const HsdpSizes z(s, mesh);
  const Index L = s.model.num_layers;
  Costs costs;
  Index P = 0, inputs = 0, dw = 0;
  for (Index l = 0; l < L; ++l) P += z.owned(l);
  Peak peak;
  for (Index l = 0; l < L; ++l) {
    inputs += z.a(l);
    peak.at({P, inputs, s.model.weights(l), z.a(l + 1)});
    costs.send_along("shard", Collective::all_gather, ring_all_gather(z.parts(l), z.shard.place));
  }
  peak.at({P, inputs, z.a(L), z.a(L)});
  for (Index l = L - 1; l >= 0; --l) {
    const bool goes_on = l > 0 || s.input_grad;
    peak.at({P, inputs, z.a(l + 1), dw, s.model.weights(l), z.scatter_buffer(l)});
    dw += z.owned(l);
    peak.at({P, inputs, z.a(l + 1), dw, ring_buffer(z.owned(l), z.replica.devices)});
    if (goes_on) peak.at({P, inputs, z.a(l + 1), dw, s.model.weights(l), z.a(l)});
    inputs -= z.a(l);
    costs.flops += (goes_on ? 3 : 2) * product_flops(z.b, z.m.width(l), z.m.width(l + 1));
    costs.send_along("shard", Collective::reduce_scatter, ring_reduce_scatter(z.parts(l), z.shard.place));
    costs.send_along("replica", Collective::all_reduce,
                     ring_all_reduce(z.owned(l), z.replica.devices, z.replica.place));
    if (goes_on)
      costs.send_along("shard", Collective::all_gather, ring_all_gather(z.parts(l), z.shard.place));
  }
  costs.parameter_bytes = P * bytes_per_element;
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard::meshes
