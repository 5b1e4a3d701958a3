#include "decoder_costs.hpp"

#include "08_decoder/tensor_traces.hpp"
#include "costs.hpp"

namespace shard::meshes {

namespace {

using decoders::DecoderSetting;

/// A parameter of a device: its part over tensor, and the dimension that data cuts in `decoder-fsdp-tensor`.
struct PartOverTensor {
  Index rows, columns;
  bool is_cut_by_columns;  ///< tensor cuts the rows

  Index elements() const { return rows * columns; }
};

/// Collectives over data, in a step that a trace follows. The trace's own are over tensor.
class OverData {
 public:
  OverData(Trace& trace, Along data) : t_(trace), data_(std::move(data)) {}

  std::vector<Index> slices_of(const PartOverTensor& p) const {
    return p.is_cut_by_columns ? slices(p.columns, p.rows, data_.devices)
                               : slices(p.rows, p.columns, data_.devices);
  }
  Index mine(const PartOverTensor& p) const { return slices_of(p)[static_cast<std::size_t>(data_.place)]; }

  void all_reduce(Index elements) {
    sent(Collective::all_reduce) += ring_all_reduce(elements, data_.devices, data_.place);
    t_.pass(ring_buffer(elements, data_.devices));
  }
  /// The whole is held beside the slice. Columns come in a buffer.
  void all_gather(const PartOverTensor& p) {
    sent(Collective::all_gather) += ring_all_gather(slices_of(p), data_.place);
    t_.hold(p.elements());
    if (p.is_cut_by_columns && data_.devices > 1) t_.pass(p.elements());
  }
  /// The slice takes the place of the addend. Columns leave in a buffer.
  void reduce_scatter(const PartOverTensor& p) {
    if (data_.devices == 1) return;
    sent(Collective::reduce_scatter) += ring_reduce_scatter(slices_of(p), data_.place);
    if (p.is_cut_by_columns) t_.pass(p.elements());
    t_.pass(slices_of(p)[0]);
    t_.hold(mine(p));
    t_.release(p.elements());
  }
  /// The step's costs, with what goes over each axis.
  Costs costs(Index parameters) const {
    Costs all = t_.costs(parameters);
    all.sent_along["tensor"] = all.total();
    for (const auto& [collective, traffic] : sent_) all.send_along("data", collective, traffic);
    return all;
  }

 private:
  Traffic& sent(Collective c) { return sent_[c]; }

  Trace& t_;
  Along data_;
  std::map<Collective, Traffic> sent_;
};

/// A step of either variant, statement by statement.
class DecoderStep {
 public:
  DecoderStep(const DecoderSetting& s, const MeshShape& mesh, bool gathers)
      : s_(s),
        gathers_(gathers),
        data_(mesh, "data", s.device),
        along_(along_tensor(s, mesh)),
        z_(along_, tokens(s)),
        t_(along_),
        over_data_(t_, data_) {
    for (const Parameter& p : s.m.parameters()) {
      const PartOverTensor mine = part_of(p);
      if (p.name.starts_with("block_0/")) block_.push_back(mine);
      parameters_ += gathers_ ? over_data_.mine(mine) : mine.elements();
    }
    for (Index b = 0; b < s.m.num_blocks; ++b)
      blocks_.push_back(
          std::make_unique<decoders::TensorBlockTrace>(t_, z_.block(along_, b), z_.divides_key_heads));
  }

  Costs costs() {
    t_.hold(parameters_);
    t_.hold(2 * z_.T);  // the input
    forward();
    t_.hold(z_.T);     // dL/dlosses
    t_.release(z_.T);  // losses
    backward();
    return over_data_.costs(parameters_);
  }

 private:
  /// What the devices along tensor do: with their part of the batch.
  DecoderSetting along_tensor(const DecoderSetting& s, const MeshShape& mesh) const {
    DecoderSetting along = s;
    along.devices = mesh.size("tensor");
    along.device = mesh.place("tensor", s.device);
    along.batch = data_.part_of(s.batch);
    return along;
  }
  Range tokens(const DecoderSetting& s) const {
    const Range sequences = part(s.batch, data_.devices, data_.place);
    return {sequences.begin * s.length, sequences.end * s.length};
  }
  PartOverTensor part_of(const Parameter& p) const;

  void forward() {
    const Index x = z_.T * z_.D;
    gather(table());
    t_.hold(x);
    t_.all_reduce(x);
    free(table());
    for (const auto& block : blocks_) {
      gather_block();
      block->forward();
      free_block();
    }
    gather(norm());
    gather(table());  // the head
    traces::rms_norm(t_, z_.T, z_.D);
    t_.hold_product(z_.T, z_.D, z_.v);
    decoders::divided_cross_entropy(t_, z_.T);
    t_.release(x + 2 * z_.T);
  }

  void backward() {
    const Index x = z_.T * z_.D;
    traces::cross_entropy_backward(t_, z_.T);
    t_.hold_product(z_.v, z_.T, z_.D);  // of the head
    t_.hold_product(z_.T, z_.v, z_.D);
    t_.all_reduce(x);
    t_.release(z_.T * z_.v);
    free(table());  // the head
    traces::rms_norm_backward(t_, z_.T, z_.D);
    leave(norm());
    if (!s_.m.is_tied) leave(table());
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      gather_block();
      (*block)->backward();
      free_block();
      for (const PartOverTensor& p : block_) leave(p);
    }
    t_.hold(z_.v * z_.D);                       // of the embedding
    if (s_.m.is_tied) t_.release(z_.v * z_.D);  // added to that of the head
    leave(table());
  }

  PartOverTensor table() const { return {z_.v, z_.D, true}; }
  PartOverTensor norm() const { return {z_.D, 1, false}; }

  /// Weights come and go, if they are divided over data.
  /// @{
  void gather(const PartOverTensor& p) {
    if (gathers_) over_data_.all_gather(p);
  }
  void free(const PartOverTensor& p) {
    if (gathers_) t_.release(p.elements());
  }
  void gather_block() {
    for (const PartOverTensor& p : block_) gather(p);
  }
  void free_block() {
    for (const PartOverTensor& p : block_) free(p);
  }
  /// @}
  /// A gradient is summed over data.
  void leave(const PartOverTensor& p) {
    if (gathers_)
      over_data_.reduce_scatter(p);
    else
      over_data_.all_reduce(p.elements());
  }

  const DecoderSetting& s_;
  bool gathers_;
  Along data_;
  DecoderSetting along_;
  decoders::TensorSizes z_;
  Trace t_;
  OverData over_data_;
  std::vector<PartOverTensor> block_;  // of each of a block's parameters
  Index parameters_ = 0;               // of this device
  decoders::BlockTraces blocks_;
};

PartOverTensor DecoderStep::part_of(const Parameter& p) const {
  const Index rows = p.shape[0], columns = num_elements(p.shape) / rows;
  const decoders::TensorHeads heads(s_.m, along_.devices);
  auto ends = [&](const char* name) { return p.name.ends_with(name); };
  if (ends("/query")) return {rows, heads.of(columns, along_.device).size(), false};
  if (ends("/key") || ends("/value")) return {rows, z_.g * s_.m.head_dim, false};
  if (ends("/output")) return {heads.of(rows, along_.device).size(), columns, true};
  if (ends("/gate") || ends("/up")) return {rows, z_.f, false};
  if (ends("/down")) return {z_.f, columns, true};
  if (p.name == embedding_name() || p.name == head_name()) return {z_.v, columns, true};
  return {rows, columns, false};  // norms and routers
}

}  // namespace

Costs decoder_data_tensor_costs(const DecoderSetting& s, const MeshShape& mesh) {
  return DecoderStep(s, mesh, false).costs();
}
Costs decoder_fsdp_tensor_costs(const DecoderSetting& s, const MeshShape& mesh) {
  return DecoderStep(s, mesh, true).costs();
}

}  // namespace shard::meshes
