#pragma once

///     ./chapters/run 09 -n 4 train --variant expert-data --mesh data=2,expert=2
///
/// A mixture whose experts are divided over the axis expert, with copies of them over the axis data. The
/// tokens are divided over both axes. The devices along expert do with their tokens what chapter 05 does:
/// together they have every expert once. An expert's copies see different tokens, so its gradient is a sum
/// over data, and over nothing else. The router's is a sum over all devices. Rajbhandari et al. 2022,
/// "DeepSpeed-MoE", section 5.1; Singh et al. 2023, "A Hybrid Tensor-Expert-Data Parallelism Approach".
/// Builds on: 05_expert/expert.hpp.

#include "05_expert/router.hpp"
#include "08_decoder/routes.hpp"
#include "expert_copies.hpp"

namespace shard::meshes {

using namespace shard::expert;  // choices, slots, plans and routes

/// A mesh that is made before the engine, because the engine's group is one of the mesh's.
struct HasMesh {
  Mesh mesh;
};

/// A layout knows its group, and a collective on it runs there. The engine's group is all devices, in the
/// order of their tokens: that of the places on data, and then on expert. Tokens and the router lie on it.
class ExpertData : private HasMesh, public ShardedEngine, public RoutesTokens {
 public:
  ExpertData(Communicator& group, const MeshShape& shape, const RoutingRule& rule)
      : HasMesh{Mesh(group, shape)},
        ShardedEngine(mesh.axes({"data", "expert"})),
        rule_(rule),
        experts_(mesh) {}

  /// ## What this device owns
  /// The router, and a copy of its experts: E/N or one more, or none, with N devices along expert.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    model_ = mixture_of(checkpoint);
    require_experts(rule_, model_.num_experts);
    router_ = load_replicated(checkpoint, router_name());
    experts_.load(checkpoint, model_);
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
    Route route = make_route(experts_.of_my_copy(counts_), experts_.owners().device_id());

    Tensor tokens = gather_rows(x.local(), plan.tokens);             // (n, D)   in the order of experts
    tokens = along_expert(std::move(tokens), route.to, route.from);  // (m, D)   tokens for my experts
    ExpertCopies::Inputs inputs;
    Tensor y = experts_.forward(std::move(tokens), counts_, route, inputs);  // (m, D)
    y = along_expert(std::move(y), route.from, route.to);  // (n, D)   back, in the order in which they left
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
    dy = along_expert(std::move(dy), route.to, route.from);  // (m, D)   of my experts' answers
    Gradients gradients;
    Tensor dtokens;
    if (wants_input_grad()) dtokens = Tensor::uninitialized({route.arriving, model_.width(0)});  // (m, D)
    experts_.backward(*this, std::move(dy), counts, route, inputs, wants_input_grad() ? &dtokens : nullptr,
                      gradients);

    std::vector<float> balance = balance_gradient(rule_, counts, x.global_shape()[0]);
    Sharded<0> dlogits = my_rows(choose_backward(std::move(dgates), choices, balance), x);  // (b, E)
    gradients.put(router_name(), all_reduce(matmul(transposed(x), dlogits)));  // (D, E)   over all: P → R
    if (!wants_input_grad()) return gradients;
    dtokens = along_expert(std::move(dtokens), route.from, route.to);            // (n, D)   of my tokens
    Sharded<0> dx = my_rows(combine_rows(dtokens, plan.slots, rule_.top_k), x);  // (b, D)
    dtokens = Tensor();
    gradients.put(Gradients::input_grad, std::move(dx) + matmul(dlogits, transposed(router_)));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }
  const RoutedCounts& routed() const override { return counts_; }
  int copies() const override { return experts_.number(); }
  const Mesh* on_mesh() const override { return &mesh; }

  Trainables trainable() override {
    Trainables all;
    all.add(router_name(), router_);
    experts_.add_to(all);
    return all;
  }

 private:
  struct Kept {
    Sharded<0> x;  // (b, D)
    Choices choices;
    RoutedCounts counts;
    Plan plan;
    Route route;
    ExpertCopies::Inputs inputs;
    Tensor y;  // (n, D)   the answers to my tokens
  };

  /// Sends each device along expert its number of rows, and receives from each as many as it has announced.
  Tensor along_expert(Tensor rows, const std::vector<Index>& to, const std::vector<Index>& from) {
    Tensor arrived = experts_.owners().all_to_all_async(std::move(rows), to, 0).get();
    decoders::require_announced(group(), from, arrived);
    return arrived;
  }

  RoutingRule rule_;
  MixtureModel model_;
  Replicated router_;  // (D, E)
  ExpertCopies experts_;
  RoutedCounts counts_;  // of the last forward
  Tape<Kept> tape_;
};

}  // namespace shard::meshes
