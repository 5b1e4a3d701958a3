#pragma once

///     ./chapters/run 05 train --variant switch-single
///
/// A mixture of experts on one device. The sharded mixture is compared with it. Each expert is the network of
/// chapter 01. A router sends each token, which is a row of the batch, to one or a few experts. With more
/// devices, each does the same work on the same data.
/// Builds on: 01_single_device.

#include "dispatch.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mixture/model.hpp"
#include "router.hpp"

namespace shard::expert {

class SingleMixture : public ShardedEngine, public RoutesTokens {
 public:
  SingleMixture(Communicator& group, const RoutingRule& rule) : ShardedEngine(group), rule_(rule) {}

  /// ## What this device owns
  /// Everything: the router, and every layer of every expert.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    model_ = mixture_of(checkpoint);
    require_experts(rule_, model_.num_experts);
    router_ = load_replicated(checkpoint, router_name());
    experts_.clear();
    for (Index e = 0; e < model_.num_experts; ++e) {
      std::vector<Replicated>& layers = experts_.emplace_back();
      for (Index l = 0; l < model_.num_layers; ++l)
        layers.push_back(load_replicated(checkpoint, expert_layer_name(e, l)));
    }
  }

  /// ## Forward
  /// The router chooses, and n choices get a slot. Each expert works on its own rows. A token's output is the
  /// sum of its experts' answers, each times its gate. A dropped choice adds nothing.
  Placed forward(Tensor input) override {
    Replicated x(group(), std::move(input));  // (B, D)
    const Index B = x.local().extent(0), k = rule_.top_k, E = model_.num_experts;
    Choices choices = choose(matmul(x, router_).local(), rule_);  // of the logits, (B, E)
    counts_ = give_slots(count_choices(choices.experts, k, E), 1, k, E, rule_.capacity(B, E));
    Plan plan = make_plan(choices.experts, counts_, 0);

    Tensor y = Tensor::uninitialized({size(plan.tokens), model_.width(model_.num_layers)});  // (n, D)
    std::vector<std::vector<Replicated>> inputs(experts_.size());
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      Range rows = plan.experts[e];
      Replicated a(group(), gather_rows(x.local(), part_of(plan.tokens, rows)));  // (n_e, D)
      for (std::size_t l = 0; l < experts_[e].size(); ++l) {
        if (relu_before(l)) a = relu(std::move(a));  // (n_e, F)
        Replicated out = matmul(a, experts_[e][l]);  // (n_e, F) or (n_e, D)
        inputs[e].push_back(std::move(a));
        a = std::move(out);
      }
      assign(Rows(y, rows.begin, rows.end), a.local());
    }
    Replicated out(group(), combine_rows(y, plan.slots, choices.gates));  // (B, D)
    tape_.push({std::move(x), std::move(choices), counts_, std::move(plan), std::move(inputs), std::move(y)});
    return out;
  }

  /// ## Backward
  /// The forward pass multiplies an answer by its gate. So the gradient of the answer is the gate times dout,
  /// and the gradient of the gate is the dot product of the answer and dout. The experts' backward pass is
  /// that of chapter 01, the router's is in router.hpp. Both read x, so dL/dx is the sum of two parts.
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    auto& [x, choices, counts, plan, inputs, y] = kept;
    Tensor dgates = dot_rows(dout, y, plan.slots, rule_.top_k);  // (B, k)
    y = Tensor();
    Gradients gradients;
    Tensor dtokens;  // (n, D)
    if (wants_input_grad()) dtokens = Tensor::uninitialized({size(plan.tokens), model_.width(0)});
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      Range rows = plan.experts[e];
      Tensor dy = gather_rows(dout, part_of(plan.tokens, rows));
      Replicated d(group(),
                   scale_rows(std::move(dy), choices.gates, part_of(plan.choices, rows)));  // (n_e, D)
      backward_expert(e, std::move(inputs[e]), d, gradients);
      if (wants_input_grad()) assign(Rows(dtokens, rows.begin, rows.end), d.local());
    }
    dout = Tensor();
    std::vector<float> balance = balance_gradient(rule_, counts, x.local().extent(0));
    Replicated dlogits(group(), choose_backward(std::move(dgates), choices, balance));  // (B, E)
    gradients.put(router_name(), matmul(transposed(x), dlogits));                       // (D, E)
    if (!wants_input_grad()) return gradients;
    Replicated dx(group(), combine_rows(dtokens, plan.slots, rule_.top_k));  // (B, D)   through the experts
    dtokens = Tensor();
    gradients.put(Gradients::input_grad, std::move(dx) + matmul(dlogits, transposed(router_)));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  const RoutedCounts& routed() const override { return counts_; }

  Trainables trainable() override { return router_and_experts(router_, experts_); }

 private:
  struct Kept {
    Replicated x;  // (B, D)
    Choices choices;
    RoutedCounts counts;
    Plan plan;
    std::vector<std::vector<Replicated>> inputs;  // of each expert's layers
    Tensor y;                                     // (n, D)   the experts' answers
  };

  /// Computes the gradient of an expert's tokens, if it is wanted, from the gradient of its answers.
  void backward_expert(std::size_t e, std::vector<Replicated> inputs, Replicated& d, Gradients& gradients) {
    for (std::size_t l = experts_[e].size(); l-- > 0; inputs.pop_back()) {
      const Replicated& a = inputs[l];  // (n_e, D) or (n_e, F)
      gradients.put(expert_layer_name(static_cast<Index>(e), static_cast<Index>(l)),
                    matmul(transposed(a), d));
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(experts_[e][l]));  // like a
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
  }

  static Index size(const std::vector<Index>& list) { return static_cast<Index>(list.size()); }

  RoutingRule rule_;
  MixtureModel model_;
  Replicated router_;                             // (D, E)
  std::vector<std::vector<Replicated>> experts_;  // (D, F), (F, D), ... each
  RoutedCounts counts_;                           // of the last forward
  Tape<Kept> tape_;
};

}  // namespace shard::expert
