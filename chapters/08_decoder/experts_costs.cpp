#include <numeric>

#include "costs.hpp"
#include "experts_route.hpp"

namespace shard::decoders {

namespace {

/// How many tokens of a device chose each expert of a block, (E).
std::vector<Index> counts_of_device(const DecoderSetting& s, Index b, int device) {
  const Range sequences = part(s.batch, s.devices, device);
  return s.choices(b, Range{sequences.begin * s.length, sequences.end * s.length});
}

/// Where this device's tokens go in a block, and what comes from others.
Route route_of_block(const DecoderSetting& s, Index b) {
  std::vector<Index> arriving;  // (N, E/N)
  const Range mine = part(s.m.experts, s.devices, s.device);
  for (int d = 0; d < s.devices; ++d) {
    const std::vector<Index> counts = counts_of_device(s, b, d);
    arriving.insert(arriving.end(), counts.begin() + mine.begin, counts.begin() + mine.end);
  }
  return route_of(counts_of_device(s, b, s.device), arriving, s.devices, s.device);
}

/// Tokens go to the experts that they chose, and answers come back.
class ExpertsBlockTrace : public BlockTrace {
 public:
  ExpertsBlockTrace(const DecoderSetting& s, Trace& trace, Index sequences, Index b)
      : BlockTrace(trace, PartSizes(s.m, sequences, s.length, {})),
        route_(route_of_block(s, b)),
        mine_(static_cast<std::size_t>(s.devices), s.mine(s.m.experts)) {
    for (int d = 0; d < s.devices; ++d) experts_.push_back(part(s.m.experts, s.devices, d).size());
  }

  /// The gradients of all weights but the experts' are reduced.
  void reduce() {
    for (Index elements : {z.D, z.D * z.Q(), z.D * z.K(), z.D * z.K(), z.Q() * z.D, z.D, z.D * z.E()})
      t.all_reduce(elements);
  }

 protected:
  void think() override {
    traces::rms_norm(t, z.T, z.D);
    t.hold_product(z.T, z.D, z.E());
    traces::choose_experts(t, z.mixture);
    t.hold(z.E());  // how many leave for each expert
    t.all_to_all(experts_, mine_);
    t.release(std::accumulate(mine_.begin(), mine_.end(), Index{0}));
    t.hold(leaving());
    t.all_to_all(elements(route_.to), elements(route_.from));
    t.hold(arriving());  // answers
    for (const std::vector<Index>& rows : route_.rows) {
      const auto here = static_cast<Index>(rows.size());
      t.hold(here * z.D);
      traces::feed_forward(t, here, z.D, z.F());
      t.release(here * z.D);  // copied
    }
    t.release(arriving());  // tokens
    t.all_to_all(elements(route_.from), elements(route_.to));
    t.hold(z.T * z.D);
  }

  void think_backward() override {
    const Index gates = z.mixture.all_choices(), logits = z.T * z.E();
    t.hold(gates);
    release_kept(leaving());  // answers
    t.hold(leaving());
    t.all_to_all(elements(route_.to), elements(route_.from));
    answers_backward();
    t.all_to_all(elements(route_.from), elements(route_.to));
    t.hold(z.T * z.D);
    t.release(leaving());
    t.hold(logits);
    t.release(gates);
    t.hold_product(z.D, z.T, z.E());
    t.hold_product(z.T, z.E(), z.D);
    t.release(z.T * z.D);
    norm_backward();
    t.release(logits);
  }

 private:
  /// The gradient of the tokens takes the place of that of the answers.
  void answers_backward() {
    t.hold(arriving());
    for (const std::vector<Index>& rows : route_.rows) {
      const auto here = static_cast<Index>(rows.size());
      t.hold(here * z.D);  // of the answers
      traces::feed_forward_backward(t, here, z.D, z.F());
      freed_by_layer(3 * here * z.F());
      release_kept(here * z.D);   // the tokens
      t.release(2 * here * z.D);  // their gradients, copied, and those of the answers
    }
    t.release(arriving());
  }

  /// Of rows that leave, and that arrive.
  Index leaving() const { return z.mixture.all_choices() * z.D; }
  Index arriving() const { return route_.arriving * z.D; }
  std::vector<Index> elements(std::vector<Index> rows) const {
    for (Index& of_device : rows) of_device *= z.D;
    return rows;
  }

  Route route_;
  std::vector<Index> experts_;  // of each device
  std::vector<Index> mine_;     // my experts, for each device that tells me of its tokens
};

}  // namespace

Costs experts_costs(const DecoderSetting& s) {
  const DecoderModel& m = s.m;
  const Index sequences = s.mine(s.batch), T = sequences * s.length, D = m.model_dim, V = m.vocabulary;
  const Index elsewhere = m.experts - s.mine(m.experts);
  const Index parameters = s.parameters() - m.num_blocks * elsewhere * 3 * D * m.hidden_dim;
  Trace t(s);
  t.hold(parameters);
  t.hold(2 * T);  // the input
  t.hold(T * D);  // x
  std::vector<ExpertsBlockTrace> blocks;
  for (Index b = 0; b < m.num_blocks; ++b) blocks.emplace_back(s, t, sequences, b);
  for (ExpertsBlockTrace& block : blocks) block.forward();
  loss(t, T, D, V);
  t.release(T * D + 2 * T);
  t.hold(T);     // dL/dlosses
  t.release(T);  // losses
  loss_backward(t, T, D, V);
  t.all_reduce(D);
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    block->backward();
    block->reduce();
  }
  t.hold(V * D);  // of the embedding
  if (m.is_tied)
    t.release(V * D);
  else
    t.all_reduce(V * D);
  t.all_reduce(V * D);
  return t.costs(parameters);
}

}  // namespace shard::decoders
