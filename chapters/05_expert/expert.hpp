#pragma once

///     ./chapters/run 05 -n 4 train --variant top-k --experts 7 --capacity-factor 1.25
///
/// A mixture of experts whose experts are divided over the devices. The rows of the batch, here called
/// tokens, are divided as well; the router is on every device. A token is sent to the device of each expert
/// that the router chose for it, and the expert's answer is sent back: two all-to-alls forward, two backward.
/// In this chapter, the data decide how much a device sends and computes. Lepikhin et al. 2020,
/// "GShard", section 2.2 and 3; Fedus et al. 2021, "Switch Transformers", section 2.
/// Builds on: 05_expert/single_mixture.hpp, 02_data_parallel.

#include "dispatch.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mixture/model.hpp"
#include "router.hpp"

namespace shard::expert {

class ExpertParallel : public ShardedEngine, public RoutesTokens {
 public:
  ExpertParallel(Communicator& group, const RoutingRule& rule) : ShardedEngine(group), rule_(rule) {}

  /// ## What this device owns
  /// The router, like every device, and its experts: E/N or one more, or none.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    model_ = mixture_of(checkpoint);
    require_experts(rule_, model_.num_experts);
    router_ = load_replicated(checkpoint, router_name());
    mine_ = part(model_.num_experts, num_devices(), device_id());
    experts_.clear();
    for (Index e = 0; e < model_.num_experts; ++e) {
      const int owner = part_with(model_.num_experts, num_devices(), e);
      std::vector<Owned>& layers = experts_.emplace_back();
      for (Index l = 0; l < model_.num_layers; ++l)
        layers.push_back(load_owned(checkpoint, expert_layer_name(e, l), owner));
    }
  }

  /// ## Forward
  /// Slots are given out over the whole batch, so the devices tell each other how many tokens chose which
  /// expert: k E numbers each. Then each device knows what all devices will send. Tokens are sent as plain
  /// tensors, without a layout.
  Placed forward(Tensor input) override {
    Sharded<0> x = my_rows(std::move(input));                     // (b, D)   my tokens
    Choices choices = choose(matmul(x, router_).local(), rule_);  // (b, E)   S0·R = S0
    const Index B = x.global_shape()[0], k = rule_.top_k, E = model_.num_experts;
    std::vector<Index> chosen = all_gather(count_choices(choices.experts, k, E));  // (N, k, E)
    counts_ = give_slots(std::move(chosen), num_devices(), k, E, rule_.capacity(B, E));
    Plan plan = make_plan(choices.experts, counts_, device_id());
    Route route = make_route(counts_, device_id());

    Tensor tokens = gather_rows(x.local(), plan.tokens);  // (n, D)   in the order of experts, so of devices
    tokens = all_to_all(std::move(tokens), route.to);     // (m, D)   tokens for my experts
    std::vector<std::vector<Owned>> inputs(experts_.size());
    Tensor y = forward_experts(std::move(tokens), route, inputs);  // (m, D)
    y = all_to_all(std::move(y), route.from);  // (n, D)   back, in the order in which they left
    Sharded<0> out = my_rows(combine_rows(y, plan.slots, choices.gates), x);  // (b, D)
    tape_.push({std::move(x), std::move(choices), counts_, std::move(plan), std::move(route),
                std::move(inputs), std::move(y)});
    return out;
  }

  /// ## Backward
  /// The gradients of answers go to the experts, and the gradients of tokens come back. An expert has worked
  /// on all of its tokens, so its device has its whole gradient. Only the router's is a sum over the devices.
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    auto& [x, choices, counts, plan, route, inputs, y] = kept;
    Tensor dgates = dot_rows(dout, y, plan.slots, rule_.top_k);  // (b, k)
    y = Tensor();
    Tensor dy = gather_rows(dout, plan.tokens);  // (n, D)
    dout = Tensor();
    dy = scale_rows(std::move(dy), choices.gates, plan.choices);
    dy = all_to_all(std::move(dy), route.to);  // (m, D)   of my experts' answers
    Gradients gradients;
    Tensor dtokens = backward_experts(std::move(dy), route, inputs, gradients);  // (m, D)

    std::vector<float> balance = balance_gradient(rule_, counts, x.global_shape()[0]);
    Sharded<0> dlogits = my_rows(choose_backward(std::move(dgates), choices, balance), x);  // (b, E)
    gradients.put(router_name(), all_reduce(matmul(transposed(x), dlogits)));  // (D, E)   S0ᵀ·S0 = P → R
    if (!wants_input_grad()) return gradients;
    dtokens = all_to_all(std::move(dtokens), route.from);                        // (n, D)   of my tokens
    Sharded<0> dx = my_rows(combine_rows(dtokens, plan.slots, rule_.top_k), x);  // (b, D)
    dtokens = Tensor();
    gradients.put(Gradients::input_grad, std::move(dx) + matmul(dlogits, transposed(router_)));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }
  const RoutedCounts& routed() const override { return counts_; }

  Trainables trainable() override { return router_and_experts(router_, experts_); }

 private:
  struct Kept {
    Sharded<0> x;  // (b, D)
    Choices choices;
    RoutedCounts counts;
    Plan plan;
    Route route;
    std::vector<std::vector<Owned>> inputs;  // of my experts' layers
    Tensor y;                                // (n, D)   the answers to my tokens
  };

  /// Each of this device's experts works on its rows. Row i of the result is the answer to row i of `tokens`.
  Tensor forward_experts(Tensor tokens, const Route& route, std::vector<std::vector<Owned>>& inputs) {
    Tensor y = Tensor::uninitialized({route.arriving, model_.width(model_.num_layers)});  // (m, D)
    for (Index e = mine_.begin; e < mine_.end; ++e) {
      const std::vector<Index>& rows = route.rows[static_cast<std::size_t>(e - mine_.begin)];
      Owned a = Owned::mine(group(), gather_rows(tokens, rows));  // (m_e, D)
      for (Index l = 0; l < model_.num_layers; ++l) {
        if (relu_before(l)) a = relu(std::move(a));  // (m_e, F)
        Owned out = matmul(a, layer(e, l));          // (m_e, F) or (m_e, D)   O·O = O
        inputs[static_cast<std::size_t>(e)].push_back(std::move(a));
        a = std::move(out);
      }
      scatter_rows(a.local(), rows, y);
    }
    return y;
  }

  /// Adds the gradients of this device's experts to `gradients`. Returns the gradient of the tokens, if
  /// wanted.
  Tensor backward_experts(Tensor dy, const Route& route, std::vector<std::vector<Owned>>& inputs,
                          Gradients& gradients) {
    Tensor dtokens;
    if (wants_input_grad()) dtokens = Tensor::uninitialized({route.arriving, model_.width(0)});  // (m, D)
    for (Index e = 0; e < model_.num_experts; ++e) {
      std::vector<Owned>& kept = inputs[static_cast<std::size_t>(e)];
      if (e < mine_.begin || e >= mine_.end) {
        for (Index l = 0; l < model_.num_layers; ++l)
          gradients.put(expert_layer_name(e, l),
                        Owned(group(), Tensor(), model_.shape(l), layer(e, l).owner()));
        continue;
      }
      const std::vector<Index>& rows = route.rows[static_cast<std::size_t>(e - mine_.begin)];
      Owned d = Owned::mine(group(), gather_rows(dy, rows));  // (m_e, D)
      for (Index l = model_.num_layers - 1; l >= 0; --l, kept.pop_back()) {
        const Owned& a = kept.back();                                      // (m_e, D) or (m_e, F)
        gradients.put(expert_layer_name(e, l), matmul(transposed(a), d));  // like the weights   O·O = O
        if (l > 0 || wants_input_grad()) d = matmul(d, transposed(layer(e, l)));  // like a
        if (relu_before(l)) d = relu_backward(std::move(d), a);
      }
      if (wants_input_grad()) scatter_rows(d.local(), rows, dtokens);
    }
    return dtokens;
  }

  Owned& layer(Index e, Index l) { return experts_[std::size_t(e)][std::size_t(l)]; }

  RoutingRule rule_;
  MixtureModel model_;
  Range mine_;                               // my experts
  Replicated router_;                        // (D, E)
  std::vector<std::vector<Owned>> experts_;  // (D, F), (F, D), ... of each expert, on all devices
  RoutedCounts counts_;                      // of the last forward
  Tape<Kept> tape_;
};

}  // namespace shard::expert
