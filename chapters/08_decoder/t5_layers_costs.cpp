#include <map>
#include <memory>

#include "engine/schedules/interpreter.hpp"
#include "engine/workloads/block_traces.hpp"
#include "pipelined.hpp"
#include "t5_costs.hpp"

namespace shard::decoders {

namespace {

/// A block whose weights' gradients are added to those of earlier micro-batches.
class T5StageBlockTrace : public T5BlockTrace {
 public:
  T5StageBlockTrace(Trace& trace, const T5Sizes& sizes, Side side, const bool& has_sums)
      : T5BlockTrace(trace, sizes, side), has_sums_(has_sums) {}

 protected:
  void put(Index elements) override {
    if (has_sums_) t.release(elements);
  }

 private:
  const bool& has_sums_;
};

/// One device's part of the schedule, action by action.
class T5StageTrace : public Interpreter {
 public:
  T5StageTrace(const T5Setting& s, const T5Split& split, Index micro_batches)
      : s_(s), split_(split), t_(s), micro_batches_(micro_batches) {}

  Costs costs() {
    t_.hold(trained() + copied());
    t_.hold(s_.input(s_.batch));
    const Work work = one_forward_one_backward(s_.devices, micro_batches_);
    interpret(with_messages(s_.devices, micro_batches_, work), s_.device, *this);
    for (const auto& [table, owner, reader] : split_.copies()) {
      if (reader == s_.device) t_.send(elements(table));
      if (owner == s_.device) t_.pass(elements(table));
    }
    Costs costs = t_.costs(trained() + copied());
    costs.trained_bytes = trained() * bytes_per_element;
    for (const auto& [table, owner, reader] : split_.copies()) {
      const Index bytes = elements(table) * bytes_per_element;
      if (owner == s_.device) costs.after_step(Collective::send) += {1, bytes};
      if (reader == s_.device) costs.after_step_bytes = std::max(costs.after_step_bytes, bytes);
    }
    return costs;
  }

 protected:
  void forward(Index m, int) override {
    const T5Sizes z = sizes(m);
    const Index T_e = z.rows(Side::encoder), T = z.rows(Side::decoder);
    if (has(Side::encoder)) read(Side::encoder, m);
    if (split_.has_last(Side::encoder, s_.device)) {
      traces::rms_norm(t_, T_e, z.D);
      t_.release(T_e * z.D);
    }
    if (!has(Side::decoder)) return;
    read(Side::decoder, m);
    if (!is_last()) return t_.hold(T_e * z.D);  // a copy of what the encoder returned
    loss(t_, T, z.D, s_.m.vocabulary);
    t_.release(T * z.D);  // x
    t_.hold(T);           // dL/dlosses
    t_.release(T);        // losses
  }
  void backward(Index m, int) override {
    const T5Sizes z = sizes(m);
    if (is_last()) loss_backward(z.rows(Side::decoder));
    if (has(Side::decoder)) read_backward(Side::decoder, m);
    if (split_.has_last(Side::encoder, s_.device)) {
      traces::rms_norm_backward(t_, z.rows(Side::encoder), z.D);
      add_to_sum(z.D);
    }
    if (has(Side::encoder)) read_backward(Side::encoder, m);
    t_.release(kept_by_stacks(z));
    has_sums_ = true;
  }

  void post_send(const Message& m) override {
    for (Index elements : tensors_of(m)) t_.send(elements);
  }
  void wait_sent(const Message& m) override {
    for (Index elements : tensors_of(m)) t_.release(elements);
  }
  void post_receive(const Message& m) override {
    for (Index elements : tensors_of(m)) t_.hold(elements);
  }

 private:
  using Blocks = std::vector<T5StageBlockTrace>;

  bool has(Side side) const { return split_.has(side, s_.device); }
  bool is_last() const { return s_.device == split_.last(); }
  T5Sizes sizes(Index m) const {
    const Range sequences = part(s_.batch, static_cast<int>(micro_batches_), static_cast<int>(m));
    return {s_, sequences.size(), s_.m.heads, s_.m.hidden_dim};
  }
  Index elements(Table table) const { return num_elements(table_shape(s_.m, table)); }
  /// Elements of what the optimizer updates, and of copies.
  Index trained() const {
    const T5Sizes z = sizes(0);
    Index all = is_last() && !s_.m.is_tied ? elements(Table::embedding) : 0;
    for (Table table : all_tables)
      if (split_.readers(table)[0] == s_.device) all += elements(table);
    for (Side side : {Side::encoder, Side::decoder})
      all += split_.blocks(side, s_.device).size() * z.block_parameters(side) +
             (split_.has_last(side, s_.device) ? z.D : 0);
    return all;
  }
  Index copied() const {
    Index all = 0;
    for (const TableCopy& copy : split_.copies())
      if (copy.reader == s_.device) all += elements(copy.table);
    return all;
  }
  /// Elements of each tensor of a message.
  std::vector<Index> tensors_of(const Message& m) const {
    const T5Sizes z = sizes(m.micro_batch);
    std::vector<Index> elements = {z.rows(Side::encoder) * z.D};
    if (split_.is_within_decoder(std::max(m.stage, m.from_stage())))
      elements.push_back(z.rows(Side::decoder) * z.D);
    return elements;
  }
  /// Elements of what a micro-batch keeps beside what its blocks keep.
  Index kept_by_stacks(const T5Sizes& z) const {
    const Index T_e = z.rows(Side::encoder), T = z.rows(Side::decoder);
    Index all = 0;
    for (Side side : {Side::encoder, Side::decoder}) all += has(side) ? z.bias(side) : 0;
    if (split_.has_last(Side::encoder, s_.device)) all += T_e * z.D + T_e;  // of the norm
    if (has(Side::decoder)) all += T_e * z.D;                               // what the encoder returned
    if (is_last()) all += 2 * T * z.D + T;                                  // the norm, and what it gave
    return all;
  }
  /// The first addend becomes the sum. Later ones are freed when they have been added.
  void add_to_sum(Index addend) {
    if (has_sums_) t_.release(addend);
  }
  /// The embedding's has the head's, too, where that is the same table.
  void add_to_embedding() {
    t_.hold(elements(Table::embedding));
    if (std::exchange(has_embedding_, true)) t_.release(elements(Table::embedding));
  }

  void read(Side side, Index m) {
    const T5Sizes z = sizes(m);
    t_.hold(z.bias(side));
    if (split_.has_first(side, s_.device)) t_.hold(z.rows(side) * z.D);
    Blocks& blocks = blocks_[{side, m}];
    for (Index b = 0; b < split_.blocks(side, s_.device).size(); ++b)
      blocks.emplace_back(t_, z, side, has_sums_).forward();
  }
  void read_backward(Side side, Index m) {
    const T5Sizes z = sizes(m);
    t_.hold(z.bias(side));  // its gradient
    Blocks blocks = std::move(blocks_.extract({side, m}).mapped());
    bool begins_sum = is_last();
    for (; !blocks.empty(); blocks.pop_back()) blocks.back().backward(std::exchange(begins_sum, false));
    t_.hold(z.table_of_bias());
    add_to_sum(z.table_of_bias());
    if (split_.has_first(side, s_.device)) {
      add_to_embedding();
      t_.release(z.rows(side) * z.D);
    }
    t_.release(z.bias(side));
  }
  void loss_backward(Index T) {
    const Index D = s_.m.model_dim, V = s_.m.vocabulary;
    traces::cross_entropy_backward(t_, T);
    t_.product(V, T, D);  // of the head
    if (s_.m.is_tied) {
      add_to_embedding();
    } else {
      t_.hold(V * D);
      add_to_sum(V * D);
    }
    t_.hold_product(T, V, D);
    t_.release(T * V);
    traces::rms_norm_backward(t_, T, D);
    add_to_sum(D);
    t_.release(T);  // dL/dlosses
  }

  const T5Setting& s_;
  const T5Split& split_;
  Trace t_;
  Index micro_batches_;
  std::map<std::pair<Side, Index>, Blocks> blocks_;  // of each micro-batch on its way
  bool has_sums_ = false, has_embedding_ = false;
};

}  // namespace

Costs t5_layers_costs(const T5Setting& s, const T5Split& split, Index micro_batches) {
  return T5StageTrace(s, split, micro_batches).costs();
}

}  // namespace shard::decoders
