#include "costs.hpp"

namespace shard::decoders {

namespace {

/// A step of fsdp. Whole weights come and go, beside this device's rows of each parameter.
class FsdpTrace {
 public:
  explicit FsdpTrace(const DecoderSetting& s)
      : s_(s), t_(s), V_(s.m.vocabulary), D_(s.m.model_dim), table_(slices(V_, D_, s.devices)) {
    for (const Parameter& p : s.m.parameters())
      if (p.name.starts_with("block_0/")) {
        block_.push_back(slices(p.shape[0], num_elements(p.shape) / p.shape[0], s.devices));
        block_elements_ += num_elements(p.shape);
      }
  }

  Costs costs() {
    const Range sequences = part(s_.batch, s_.devices, s_.device);
    const Range rows = {sequences.begin * s_.length, sequences.end * s_.length};
    for (Index b = 0; b < s_.m.num_blocks; ++b)
      blocks_.push_back(std::make_unique<BlockTrace>(
          t_, PartSizes(s_.m, sequences.size(), s_.length, s_.choices(b, rows))));
    t_.hold(shards());
    forward(rows.size());
    t_.hold(rows.size());     // dL/dlosses
    t_.release(rows.size());  // losses
    backward(rows.size());
    return t_.costs(shards());
  }

 private:
  void forward(Index T) {
    t_.hold(2 * T);  // the input
    t_.all_gather(table_);
    gather_block();
    t_.hold(T * D_);      // x
    t_.release(V_ * D_);  // the table
    for (const auto& block : blocks_) {
      const bool is_last = block == blocks_.back();
      if (is_last) {
        t_.all_gather(slices(D_, 1, s_.devices));
        t_.all_gather(table_);
      } else {
        gather_block();
      }
      block->forward();
      if (!is_last) t_.release(block_elements_);
    }
    loss(t_, T, D_, V_);
    t_.release(block_elements_ + T * D_ + 2 * T);  // the last block's weights, x, the input
  }

  void backward(Index T) {
    gather_block();
    loss_backward(t_, T, D_, V_);
    t_.release(V_ * D_);  // the head
    leave(slices(D_, 1, s_.devices));
    if (!s_.m.is_tied) leave(table_);
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      if (*block != blocks_.front()) gather_block();
      (*block)->backward();
      t_.release(block_elements_);
      arrive();
      for (const std::vector<Index>& gradient : block_) leave(gradient);
    }
    t_.hold(V_ * D_);                       // of the embedding
    if (s_.m.is_tied) t_.release(V_ * D_);  // added to that of the head
    arrive();
    t_.reduce_scatter(table_);
  }

  void gather_block() {
    for (const std::vector<Index>& parameter : block_) t_.all_gather(parameter);
  }
  /// Gradients are reduced some time. They are waited for together.
  void leave(const std::vector<Index>& gradient) {
    t_.begin_reduce_scatter(gradient);
    leaving_.push_back(gradient);
  }
  void arrive() {
    for (const std::vector<Index>& gradient : leaving_) t_.end_reduce_scatter(gradient);
    leaving_.clear();
  }
  /// Elements of this device's rows of all parameters.
  Index shards() const {
    Index elements = 0;
    for (const Parameter& p : s_.m.parameters())
      elements += s_.mine(p.shape[0]) * (num_elements(p.shape) / p.shape[0]);
    return elements;
  }

  const DecoderSetting& s_;
  Trace t_;
  Index V_, D_;
  std::vector<Index> table_;               // slices of the embedding or the head
  std::vector<std::vector<Index>> block_;  // slices of each of a block's parameters
  Index block_elements_ = 0;
  BlockTraces blocks_;
  std::vector<std::vector<Index>> leaving_;  // of gradients that are being reduced
};

}  // namespace

Costs fsdp_costs(const DecoderSetting& s) {
  return FsdpTrace(s).costs();
}

}  // namespace shard::decoders
