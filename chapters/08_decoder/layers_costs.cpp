#include <map>

#include "costs.hpp"
#include "layers_split.hpp"
#include "layers_worker.hpp"

namespace shard::decoders {

namespace {

/// One device's part of the schedule, action by action.
class StageTrace : public Interpreter {
 public:
  StageTrace(const DecoderSetting& s, Range blocks, Index micro_batches)
      : s_(s), t_(s), mine_(blocks), micro_batches_(micro_batches) {}

  Costs costs() {
    const Index all = s_.tokens();
    t_.hold(trained() + copy());
    if (is_first()) t_.hold(2 * all);  // the input
    if (s_.devices > 1) tell_labels(all);
    const Work work = one_forward_one_backward(s_.devices, micro_batches_);
    interpret(with_messages(s_.devices, micro_batches_, work), s_.device, *this);
    join_tables();
    Costs costs = t_.costs(trained() + copy());
    costs.trained_bytes = trained() * bytes_per_element;
    if (!has_copy()) return costs;
    // The first device's new table goes to the last one.
    if (is_first()) costs.after_step(Collective::send) = {1, table() * bytes_per_element};
    if (is_last()) costs.after_step_bytes = table() * bytes_per_element;
    return costs;
  }

 protected:
  void forward(Index m, int) override {
    const Index T = rows(m).size();
    if (is_first()) t_.hold(T * D());  // x
    BlockTraces& blocks = blocks_[m];
    for (Index b = mine_.begin; b < mine_.end; ++b) {
      const PartSizes sizes(s_.m, T / s_.length, s_.length, s_.choices(b, rows(m)));
      blocks.push_back(std::make_unique<BlockTrace>(t_, sizes));
      blocks.back()->forward();
    }
    if (!is_last()) return;
    loss(t_, T, D(), s_.m.vocabulary);
    t_.release(T * D());  // x
    t_.hold(T);           // dL/dlosses
    t_.release(T);        // losses
  }
  void backward(Index m, int) override {
    const Index T = rows(m).size();
    if (is_last()) loss_backward(T);
    BlockTraces blocks = std::move(blocks_.extract(m).mapped());
    for (; !blocks.empty(); blocks.pop_back()) {
      blocks.back()->backward();
      add_to_sum(elements_of_block(s_.m));
    }
    if (is_last()) t_.release(T + 2 * T * D());  // of the last norm
    if (is_first()) {
      t_.hold(table());
      add_to_sum(table());
      t_.release(T * D());
    }
    has_sums_ = true;
  }

  /// A tensor is held until it has left.
  void post_send(const Message& m) override { t_.send(rows(m.micro_batch).size() * D()); }
  void wait_sent(const Message& m) override { t_.release(rows(m.micro_batch).size() * D()); }
  void post_receive(const Message& m) override { t_.hold(rows(m.micro_batch).size() * D()); }

 private:
  bool is_first() const { return s_.device == 0; }
  bool is_last() const { return s_.device + 1 == s_.devices; }
  bool has_copy() const { return s_.m.is_tied && s_.devices > 1; }
  Index D() const { return s_.m.model_dim; }
  Index table() const { return s_.m.vocabulary * D(); }
  /// Elements of what the optimizer updates, and of the last device's copy of a table that is used twice.
  Index trained() const {
    const Index ends = (is_first() ? table() : 0) + (is_last() ? D() + (s_.m.is_tied ? 0 : table()) : 0);
    return mine_.size() * elements_of_block(s_.m) + ends;
  }
  Index copy() const { return has_copy() && is_last() ? table() : 0; }
  /// Rows of the batch in a micro-batch.
  Range rows(Index m) const {
    const Range sequences = part(s_.batch, static_cast<int>(micro_batches_), static_cast<int>(m));
    return {sequences.begin * s_.length, sequences.end * s_.length};
  }

  void tell_labels(Index labels) {
    if (is_first()) t_.send(labels);
    if (is_first() || is_last()) t_.pass(labels);
  }
  /// The first addend becomes the sum. Later ones are freed when they have been added.
  void add_to_sum(Index addend) {
    if (has_sums_) t_.release(addend);
  }
  void loss_backward(Index T) {
    traces::cross_entropy_backward(t_, T);
    t_.hold_product(s_.m.vocabulary, T, D());  // of the head
    add_to_sum(table());
    t_.hold_product(T, s_.m.vocabulary, D());
    t_.release(T * s_.m.vocabulary);
    traces::rms_norm_backward(t_, T, D());
    add_to_sum(D());
    t_.release(T);  // dL/dlosses
  }
  /// The two gradients of a table that is used twice are added on the first device.
  void join_tables() {
    if (has_copy() && is_last()) t_.send(table());
    if (has_copy() && is_first()) t_.pass(table());
  }

  const DecoderSetting& s_;
  Trace t_;
  Range mine_;
  Index micro_batches_;
  std::map<Index, BlockTraces> blocks_;  // of each micro-batch on its way
  bool has_sums_ = false;
};

}  // namespace

Costs layers_costs(const DecoderSetting& s, const std::vector<Range>& parts, Index micro_batches) {
  return StageTrace(s, parts[static_cast<std::size_t>(s.device)], micro_batches).costs();
}

}  // namespace shard::decoders
