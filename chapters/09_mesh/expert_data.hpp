#pragma once

///     ./chapters/run 09 -n 4 train --variant expert-data --mesh data=2,expert=2
///
/// A mixture whose experts are divided over the axis expert, with copies of them over the axis data. The
/// tokens are divided over both axes. The devices along expert do with their tokens what chapter 05 does:
/// together they have every expert once. An expert's copies see different tokens, so its gradient is a sum
/// over data, and over nothing else. The router's is a sum over all devices. Rajbhandari et al. 2022,
/// "DeepSpeed-MoE", section 5.1; Singh et al. 2023, "A Hybrid Tensor-Expert-Data Parallelism Approach".
/// Builds on: 05_expert/expert.hpp.

#include "05_expert/dispatch.hpp"
#include "05_expert/router.hpp"
#include "engine/mesh.hpp"
#include "engine/sharded_engine.hpp"
#include "engine/workloads/mixture_model.hpp"

namespace shard::meshes {

using namespace shard::expert;  // choices, slots, plans and routes

/// A mesh that is made before the engine, because the engine's group is one of the mesh's.
struct HasMesh {
  Mesh mesh;
};

/// A layout knows its group, and a collective on it runs there. Three groups hold tensors:
/// - all devices, in the order of their tokens: tokens and the router;
/// - the devices along expert: they send each other tokens, and each owns its experts;
/// - the devices along data: each expert's copies, and the rows on which these work.
class ExpertData : private HasMesh, public ShardedEngine, public RoutesTokens {
 public:
  ExpertData(Communicator& group, const MeshShape& shape, const RoutingRule& rule)
      : HasMesh{Mesh(group, shape)}, ShardedEngine(mesh.axes({"data", "expert"})), rule_(rule) {}

  /// ## What this device owns
  /// The router, and a copy of its experts: E/N or one more, or none, with N devices along expert.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    model_ = mixture_of(checkpoint);
    require_experts(rule_, model_.num_experts);
    router_ = load_replicated(checkpoint, router_name());
    mine_ = part(model_.num_experts, experts().num_devices(), experts().device_id());
    layers_.clear();
    for (Index e = mine_.begin; e < mine_.end; ++e)
      for (Index l = 0; l < model_.num_layers; ++l)
        layers_.emplace_back(copies_of_mine(), checkpoint.whole(expert_layer_name(e, l)));
  }

  /// ## Forward
  /// Slots are given out over the whole batch, so all devices tell each other their counts. Tokens are sent
  /// along expert only: each finds a copy of its expert there.
  Placed forward(Tensor input) override {
    Sharded<0> x = my_rows(std::move(input));                     // (b, D)   my tokens
    Choices choices = choose(matmul(x, router_).local(), rule_);  // (b, E)   S0·R = S0
    const Index B = x.global_shape()[0], k = rule_.top_k, E = model_.num_experts;
    std::vector<Index> chosen = all_gather(count_choices(choices.experts, k, E));  // (devices, k, E)
    counts_ = give_slots(std::move(chosen), num_devices(), k, E, rule_.capacity(B, E));
    Plan plan = make_plan(choices.experts, counts_, device_id());
    Route route = make_route(along_expert(counts_), experts().device_id());

    Tensor tokens = gather_rows(x.local(), plan.tokens);  // (n, D)   in the order of experts
    tokens = along_expert(std::move(tokens), route.to);   // (m, D)   tokens for my experts
    Inputs inputs(static_cast<std::size_t>(mine_.size()));
    Tensor y = forward_experts(std::move(tokens), counts_, route, inputs);  // (m, D)
    y = along_expert(std::move(y), route.from);  // (n, D)   back, in the order in which they left
    Sharded<0> out = my_rows(combine_rows(y, plan.slots, choices.gates), x);  // (b, D)
    tape_.push({std::move(x), std::move(choices), counts_, std::move(plan), std::move(route),
                std::move(inputs), std::move(y)});
    return out;
  }

  /// ## Backward
  /// As in chapter 05, but the device has only one addend of its experts' gradients. The other addends are on
  /// their other copies.
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    auto& [x, choices, counts, plan, route, inputs, y] = kept;
    Tensor dgates = dot_rows(dout, y, plan.slots, rule_.top_k);  // (b, k)
    y = Tensor();
    Tensor dy = gather_rows(dout, plan.tokens);  // (n, D)
    dout = Tensor();
    dy = scale_rows(std::move(dy), choices.gates, plan.choices);
    dy = along_expert(std::move(dy), route.to);  // (m, D)   of my experts' answers
    Gradients gradients;
    Tensor dtokens = backward_experts(std::move(dy), counts, route, inputs, gradients);  // (m, D)

    std::vector<float> balance = balance_gradient(rule_, counts, x.global_shape()[0]);
    Sharded<0> dlogits = my_rows(choose_backward(std::move(dgates), choices, balance), x);  // (b, E)
    gradients.put(router_name(), all_reduce(matmul(transposed(x), dlogits)));  // (D, E)   over all: P → R
    if (!wants_input_grad()) return gradients;
    dtokens = along_expert(std::move(dtokens), route.from);                      // (n, D)   of my tokens
    Sharded<0> dx = my_rows(combine_rows(dtokens, plan.slots, rule_.top_k), x);  // (b, D)
    dtokens = Tensor();
    gradients.put(Gradients::input_grad, std::move(dx) + matmul(dlogits, transposed(router_)));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }
  const RoutedCounts& routed() const override { return counts_; }
  int copies() const override { return mesh.size("data"); }

  Trainables trainable() override {
    Trainables all;
    all.add(router_name(), router_);
    for (Index e = mine_.begin; e < mine_.end; ++e)
      for (Index l = 0; l < model_.num_layers; ++l) all.add(expert_layer_name(e, l), layer(e, l));
    return all;
  }

 private:
  using Inputs = std::vector<std::vector<Sharded<0>>>;  // of my experts' layers
  struct Kept {
    Sharded<0> x;  // (b, D)
    Choices choices;
    RoutedCounts counts;
    Plan plan;
    Route route;
    Inputs inputs;
    Tensor y;  // (n, D)   the answers to my tokens
  };

  /// The devices that have all experts once, and those that have copies of mine.
  Communicator& experts() const { return mesh.axis("expert"); }
  Communicator& copies_of_mine() const { return mesh.axis("data"); }
  int first_along_expert() const { return mesh.place("data") * experts().num_devices(); }
  RoutedCounts along_expert(const RoutedCounts& all) const {
    return all.of_devices(first_along_expert(), experts().num_devices());
  }
  Tensor along_expert(Tensor rows, const std::vector<Index>& to) {
    return experts().all_to_all_async(std::move(rows), to, 0).get();
  }
  /// Rows on which my copy of an expert works. Those of other copies stand before and after them.
  Sharded<0> of_copy(Tensor rows, Index e, const RoutedCounts& counts) const {
    Index before = 0;
    for (int d = 0; d < first_along_expert(); ++d) before += counts.kept_from(d, e);
    Shape global{counts.kept_for(e), rows.extent(1)};
    return Sharded<0>(copies_of_mine(), std::move(rows), std::move(global), before);
  }
  const std::vector<Index>& rows_for(Index e, const Route& route) const {
    return route.rows[static_cast<std::size_t>(e - mine_.begin)];
  }

  Tensor forward_experts(Tensor tokens, const RoutedCounts& counts, const Route& route, Inputs& inputs) {
    Tensor y = Tensor::uninitialized({route.arriving, model_.width(model_.num_layers)});  // (m, D)
    for (Index e = mine_.begin; e < mine_.end; ++e) {
      Sharded<0> a = of_copy(gather_rows(tokens, rows_for(e, route)), e, counts);  // (m_e, D)
      for (Index l = 0; l < model_.num_layers; ++l) {
        if (relu_before(l)) a = relu(std::move(a));  // (m_e, F)
        Sharded<0> out = matmul(a, layer(e, l));     // (m_e, F) or (m_e, D)   S0·R = S0
        inputs[static_cast<std::size_t>(e - mine_.begin)].push_back(std::move(a));
        a = std::move(out);
      }
      scatter_rows(a.local(), rows_for(e, route), y);
    }
    return y;
  }

  Tensor backward_experts(Tensor dy, const RoutedCounts& counts, const Route& route, Inputs& inputs,
                          Gradients& gradients) {
    Tensor dtokens;
    if (wants_input_grad()) dtokens = Tensor::uninitialized({route.arriving, model_.width(0)});  // (m, D)
    for (Index e = mine_.begin; e < mine_.end; ++e) {
      std::vector<Sharded<0>>& kept = inputs[static_cast<std::size_t>(e - mine_.begin)];
      Sharded<0> d = of_copy(gather_rows(dy, rows_for(e, route)), e, counts);  // (m_e, D)
      for (Index l = model_.num_layers - 1; l >= 0; --l, kept.pop_back()) {
        const Sharded<0>& a = kept.back();                     // (m_e, D) or (m_e, F)
        Replicated dw = all_reduce(matmul(transposed(a), d));  // S0ᵀ·S0 = P → R, over the copies
        put(e, l, std::move(dw).local(), gradients);
        if (l > 0 || wants_input_grad()) d = matmul(d, transposed(layer(e, l)));  // like a
        if (relu_before(l)) d = relu_backward(std::move(d), a);
      }
      if (wants_input_grad()) scatter_rows(d.local(), rows_for(e, route), dtokens);
    }
    put_others(gradients);
    return dtokens;
  }

  /// Along expert, one device owns an expert's gradient. Along data, all have the same.
  void put(Index e, Index l, Tensor dw, Gradients& gradients) {
    const int owner = part_with(model_.num_experts, experts().num_devices(), e);
    Placed placed = Owned(experts(), std::move(dw), model_.shape(l), owner);
    gradients.put(expert_layer_name(e, l), std::move(placed).copied_over(copies_of_mine()));
  }
  void put_others(Gradients& gradients) {
    for (Index e = 0; e < model_.num_experts; ++e)
      for (Index l = 0; l < model_.num_layers; ++l)
        if (e < mine_.begin || e >= mine_.end) put(e, l, Tensor(), gradients);
  }

  Replicated& layer(Index e, Index l) {
    return layers_[static_cast<std::size_t>((e - mine_.begin) * model_.num_layers + l)];
  }

  RoutingRule rule_;
  MixtureModel model_;
  Range mine_;                      // my experts
  Replicated router_;               // (D, E)
  std::vector<Replicated> layers_;  // (D, F), (F, D), ... of my experts
  RoutedCounts counts_;             // of the last forward
  Tape<Kept> tape_;
};

}  // namespace shard::meshes
