#include "five_costs.hpp"

#include <map>

#include "engine/schedules/interpreter.hpp"
#include "engine/schedules/schedules.hpp"
#include "five_batch.hpp"
#include "five_block_trace.hpp"

namespace shard::meshes {

namespace {

/// The extents of a device's parts: heads, key-value heads, hidden units, rows of the vocabulary, experts.
struct FiveSizes {
  Index h, g, f, v, experts;

  FiveSizes(const DecoderModel& m, const GroupAlong& tensor, const GroupAlong& expert) {
    const TensorHeads heads(m, tensor.devices);
    h = heads.queries(tensor.place).size(), g = heads.keys(tensor.place).size();
    f = part(m.hidden_dim, tensor.devices, tensor.place).size();
    v = part(m.vocabulary, tensor.devices, tensor.place).size();
    experts = part(m.experts, expert.devices, expert.place).size();
  }
};

/// One device's part of the schedule, action by action, and the reductions behind it.
class FiveStep : public Interpreter {
 public:
  FiveStep(const DecoderSetting& s, const MeshShape& mesh, CutSequences cut, Index micro_batches)
      : s_(s),
        pipeline_(mesh, {"pipeline"}, s.device),
        context_(mesh, {"context"}, s.device),
        expert_(mesh, {"expert"}, s.device),
        tensor_(mesh, {"tensor"}, s.device),
        copies_(mesh, {"data", "context", "expert"}, s.device),
        copies_of_experts_(mesh, {"data", "context"}, s.device),
        z_(s.m, tensor_, expert_),
        blocks_(part(s.m.num_blocks, pipeline_.devices, pipeline_.place)),
        sequences_(sequences_of_places(s.batch, mesh.size("data"), expert_.devices)),
        first_along_expert_(mesh.place("data", s.device) * expert_.devices),
        cut_(cut(s.batch, s.length, context_.devices)),
        micro_batches_(micro_batches_of(sequences_, micro_batches)),
        t_(s, tensor_) {}

  Costs costs() {
    t_.hold(trained() + copy());
    t_.pass(2 * mine(expert_.place).size() * s_.length);  // the input
    interpret(with_messages(pipeline_.devices, micro_batches_,
                            one_forward_one_backward(pipeline_.devices, micro_batches_)),
              pipeline_.place, *this);
    reduce();
    Costs costs = t_.costs(trained() + copy());
    costs.trained_bytes = trained() * bytes_per_element;
    if (!has_copy()) return costs;
    // The first stage's new table goes to the last one.
    if (is_first() && table() > 0) costs.after_step(Collective::send) = {1, table() * bytes_per_element};
    if (is_last()) costs.after_step_bytes = table() * bytes_per_element;
    return costs;
  }

 protected:
  void forward(Index m, int) override {
    const Index T = rows(m);
    if (is_first()) {
      t_.hold(T * D());  // x
      t_.all_reduce(T * D());
    }
    for (Index b = blocks_.begin; b < blocks_.end; ++b) {
      traces_[m].push_back(block(m, b));
      traces_[m].back()->forward();
    }
    if (!is_last()) return;
    traces::rms_norm(t_, T, D());
    t_.hold_product(T, D(), z_.v);
    divided_cross_entropy(t_, T);
    t_.release(T * D());  // x
    t_.hold(T);           // dL/dlosses, run by run: a run's losses and their gradient beside it
    for (const Range& run : cut_.runs_of(context_.place))
      if (T > 0) t_.pass(2 * run.size());
    t_.release(T);  // losses
  }
  void backward(Index m, int) override {
    const Index T = rows(m);
    if (is_last()) loss_backward(T);
    BlockTraces blocks = std::move(traces_.extract(m).mapped());
    for (; !blocks.empty(); blocks.pop_back()) blocks.back()->backward();
    if (is_first()) {
      t_.hold(table());
      add_to_sum(table());
      t_.release(T * D());
    }
    if (is_last()) t_.release(T + 2 * T * D());  // what the last norm kept
    has_sums_ = true;
  }

  /// A tensor is held until it has left.
  void post_send(const Message& m) override { t_.send_along(pipeline_, rows(m.micro_batch) * D()); }
  void wait_sent(const Message& m) override { t_.release(rows(m.micro_batch) * D()); }
  void post_receive(const Message& m) override { t_.hold(rows(m.micro_batch) * D()); }

 private:
  bool is_first() const { return pipeline_.place == 0; }
  bool is_last() const { return pipeline_.place + 1 == pipeline_.devices; }
  bool has_copy() const { return s_.m.is_tied && pipeline_.devices > 1; }
  Index D() const { return s_.m.model_dim; }
  Index table() const { return z_.v * D(); }
  Index copy() const { return has_copy() && is_last() ? table() : 0; }

  /// Calls visit(elements, copies) for each parameter that the optimizer updates, without the tables.
  template <class Visit>
  void for_each_parameter(const Visit& visit) const {
    const Index Q = z_.h * s_.m.head_dim, K = z_.g * s_.m.head_dim;
    for (Index b = blocks_.begin; b < blocks_.end; ++b) {
      for (Index elements : {D(), D() * Q, D() * K, D() * K, Q * D(), D()}) visit(elements, copies_);
      if (s_.m.is_mixture()) visit(D() * s_.m.experts, copies_);
      for (Index i = 0; i < 3 * (s_.m.is_mixture() ? z_.experts : 1); ++i)
        visit(D() * z_.f, s_.m.is_mixture() ? copies_of_experts_ : copies_);
    }
    if (is_last()) visit(D(), copies_);
  }
  Index tables() const { return (is_first() ? 1 : 0) + (is_last() && !s_.m.is_tied ? 1 : 0); }
  Index trained() const {
    Index sum = tables() * table();
    for_each_parameter([&](Index elements, const GroupAlong&) { sum += elements; });
    return sum;
  }

  /// The sequences of a place on expert, and those of them in a micro-batch.
  Range mine(int expert_place) const {
    return sequences_[static_cast<std::size_t>(first_along_expert_ + expert_place)];
  }
  Range piece(int expert_place, Index m) const {
    const Range all = mine(expert_place);
    const Range piece = part(all.size(), static_cast<int>(micro_batches_), static_cast<int>(m));
    return {all.begin + piece.begin, all.begin + piece.end};
  }
  SequenceCut cut_of(const Range& sequences) const {
    SequenceCut cut = cut_;
    cut.sequences = sequences.size();
    return cut;
  }
  /// This device's rows of a micro-batch.
  Index rows(Index m) const { return piece(expert_.place, m).size() * cut_.size(context_.place); }

  std::unique_ptr<BlockTrace> block(Index m, Index b) {
    const Range here = piece(expert_.place, m);
    const PartSizes sizes(s_.m, here.size(), cut_.size(context_.place), {}, z_.h, z_.g, z_.f);
    return std::make_unique<FiveBlockTrace>(
        t_, sizes, cut_of(here), context_, expert_, s_.m.is_mixture() ? route(m, b) : Route{},
        TensorHeads(s_.m, tensor_.devices).divides_key_heads(), [this](Index addend) { add_to_sum(addend); });
  }
  /// Where tokens of a micro-batch go in a block, between the devices along expert.
  Route route(Index m, Index b) const {
    const Range my_experts = part(s_.m.experts, expert_.devices, expert_.place);
    std::vector<Index> leaving, arriving;  // (E) and (N, E/N)
    for (int e = 0; e < expert_.devices; ++e) {
      const Range theirs = piece(e, m);
      std::vector<Index> rows = cut_of(theirs).rows_in_sequences(context_.place);
      for (Index& row : rows) row += theirs.begin * s_.length;
      const std::vector<Index> counts = s_.choices(b, rows);
      arriving.insert(arriving.end(), counts.begin() + my_experts.begin, counts.begin() + my_experts.end);
      if (e == expert_.place) leaving = counts;
    }
    return route_of(leaving, arriving, expert_.devices, expert_.place);
  }

  /// The first addend becomes the sum. Later ones are freed when they have been added.
  void add_to_sum(Index addend) {
    if (has_sums_) t_.release(addend);
  }
  void loss_backward(Index T) {
    traces::cross_entropy_backward(t_, T);
    t_.hold_product(z_.v, T, D());  // of the head
    add_to_sum(table());
    t_.hold_product(T, z_.v, D());
    t_.all_reduce(T * D());
    t_.release(T * z_.v);
    traces::rms_norm_backward(t_, T, D());
    add_to_sum(D());
    t_.release(T);  // dL/dlosses
  }
  /// Of all gradients. Those of a table that is used twice are added: here, or at the first stage.
  void reduce() {
    if (s_.m.is_tied && !has_copy()) t_.release(table());
    if (copy() > 0) {
      t_.all_reduce_along(copies_, table());
      t_.send_along(pipeline_, table());
      t_.release(table());
    }
    for (Index i = 0; i < tables(); ++i) t_.all_reduce_along(copies_, table());
    for_each_parameter([&](Index elements, const GroupAlong& over) { t_.all_reduce_along(over, elements); });
    if (has_copy() && is_first()) t_.pass(table());
  }

  const DecoderSetting& s_;
  GroupAlong pipeline_, context_, expert_, tensor_, copies_, copies_of_experts_;
  FiveSizes z_;
  Range blocks_;                  // of this stage
  std::vector<Range> sequences_;  // of each place on data and expert
  int first_along_expert_;        // of these places
  SequenceCut cut_;
  Index micro_batches_;
  FiveTrace t_;
  std::map<Index, BlockTraces> traces_;  // of each micro-batch on its way
  bool has_sums_ = false;
};

}  // namespace

Costs five_costs(const DecoderSetting& s, const MeshShape& mesh, CutSequences cut, Index micro_batches) {
  return FiveStep(s, mesh, cut, micro_batches).costs();
}

}  // namespace shard::meshes
