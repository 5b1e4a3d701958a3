#pragma once

/// The trace of one block on five axes. (Part of five_costs.cpp.)

#include "08_decoder/experts_route.hpp"
#include "08_decoder/ring_trace.hpp"
#include "08_decoder/tensor_weights.hpp"
#include "engine/workloads/block_traces.hpp"
#include "five_trace.hpp"

namespace shard::meshes {

using namespace shard::decoders;

/// A block in a step, with a micro-batch.
class FiveBlockTrace : public BlockTrace {
 public:
  /// `cut`: the micro-batch's sequences over context. `route`: where its tokens go along expert, of a
  /// mixture. `put`: what happens to a gradient's addend.
  FiveBlockTrace(FiveTrace& trace, const PartSizes& sizes, const SequenceCut& cut, const GroupAlong& context,
                 const GroupAlong& expert, Route route, bool divides_key_heads,
                 std::function<void(Index)> put)
      : BlockTrace(trace, sizes),
        t_(trace),
        cut_(cut),
        context_(context),
        expert_(expert),
        route_(std::move(route)),
        divides_key_heads_(divides_key_heads),
        put_(std::move(put)) {
    z.attention.queries = cut_.runs_of(context.place);
    for (int d = 0; d < expert.devices; ++d) experts_.push_back(part(z.E(), expert.devices, d).size());
  }

 protected:
  void attend() override {
    BlockTrace::attend();
    t_.all_reduce(z.T * z.D);
  }
  void attention() override { ring().forward(); }
  void attention_backward() override { ring().backward(); }
  void think() override {
    if (z.is_mixture())
      ask_experts();
    else
      BlockTrace::think();
    t_.all_reduce(z.T * z.D);
  }
  void attend_backward() override {
    t_.hold_product(z.Q(), z.T, z.D);
    put(z.Q() * z.D);
    t_.hold_product(z.T, z.D, z.Q());  // do
    attention_backward();
    for (int i = 0; i < 2 && !divides_key_heads_; ++i) t_.all_reduce(z.T * z.K());
    project_backward();
    t_.hold_product(z.T, z.K(), z.D);  // dn through keys, and through values
    t_.hold_product(z.T, z.K(), z.D);
    t_.release(z.T * z.D);
    t_.hold_product(z.T, z.Q(), z.D);  // and through queries
    t_.all_reduce(z.T * z.D);
    t_.release(z.T * z.D);
    norm_backward();
    t_.release(z.T * (z.Q() + 2 * z.K()));  // dq, dk, dv
  }
  void think_backward() override {
    if (z.is_mixture()) {
      ask_experts_backward();
    } else {
      traces::feed_forward_backward(t_, z.T, z.D, z.F());
      freed_by_layer(3 * z.T * z.F());
      t_.all_reduce(z.T * z.D);
      for (int i = 0; i < 3; ++i) put(z.D * z.F());
    }
    norm_backward();
  }
  void put(Index elements) override { put_(elements); }

 private:
  RingTrace ring() {
    return {t_, z.attention, cut_, context_.place,
            [this](Index elements) { t_.send_along(context_, elements); }};
  }
  void ask_experts() {
    const std::vector<Index> mine(experts_.size(), experts_[static_cast<std::size_t>(expert_.place)]);
    traces::rms_norm(t_, z.T, z.D);
    t_.hold_product(z.T, z.D, z.E());
    traces::choose_experts(t_, z.mixture);
    t_.hold(z.E());  // how many leave for each expert
    t_.all_to_all_along(expert_, experts_, mine);
    t_.release(std::accumulate(mine.begin(), mine.end(), Index{0}));
    t_.hold(leaving());
    t_.all_to_all_along(expert_, elements(route_.to), elements(route_.from));
    t_.hold(arriving());  // answers
    for (const std::vector<Index>& rows : route_.rows) {
      const auto here = static_cast<Index>(rows.size());
      t_.hold(here * z.D);
      traces::feed_forward(t_, here, z.D, z.F());
      t_.release(here * z.D);  // copied
    }
    t_.release(arriving());  // tokens
    t_.all_to_all_along(expert_, elements(route_.from), elements(route_.to));
    t_.hold(z.T * z.D);
  }
  void ask_experts_backward() {
    const Index gates = z.mixture.all_choices(), logits = z.T * z.E();
    t_.hold(gates);
    release_kept(leaving());  // answers
    t_.hold(leaving());
    t_.all_to_all_along(expert_, elements(route_.to), elements(route_.from));
    answers_backward();
    t_.all_to_all_along(expert_, elements(route_.from), elements(route_.to));
    t_.hold(z.T * z.D);
    t_.all_reduce(z.T * z.D);
    t_.release(leaving());
    t_.all_reduce(gates);
    t_.hold(logits);
    t_.release(gates);
    t_.hold_product(z.D, z.T, z.E());
    put(z.D * z.E());
    t_.hold_product(z.T, z.E(), z.D);
    t_.release(z.T * z.D + logits);
  }
  /// The gradient of the tokens takes the place of that of the answers.
  void answers_backward() {
    t_.hold(arriving());
    for (const std::vector<Index>& rows : route_.rows) {
      const auto here = static_cast<Index>(rows.size());
      t_.hold(here * z.D);  // of the answers
      traces::feed_forward_backward(t_, here, z.D, z.F());
      freed_by_layer(3 * here * z.F());
      release_kept(here * z.D);    // the tokens
      t_.release(2 * here * z.D);  // their gradients, copied, and those of the answers
    }
    t_.release(arriving());
    for (std::size_t i = 0; i < 3 * route_.rows.size(); ++i) put(z.D * z.F());
  }

  /// Elements of rows that leave, and that arrive.
  Index leaving() const { return z.mixture.all_choices() * z.D; }
  Index arriving() const { return route_.arriving * z.D; }
  std::vector<Index> elements(std::vector<Index> rows) const {
    for (Index& of_device : rows) of_device *= z.D;
    return rows;
  }

  FiveTrace& t_;
  SequenceCut cut_;
  const GroupAlong &context_, &expert_;
  Route route_;
  bool divides_key_heads_;
  std::function<void(Index)> put_;
  std::vector<Index> experts_;  // of each place on expert
};

}  // namespace shard::meshes
