#pragma once

/// A device's copies of its experts. (Part of expert_data.hpp.) An expert lies on the devices along the axis
/// data, as a network does in chapter 02: its weights are the same on each, its rows are divided, and the
/// gradient of its weights is a Partial. So a reduction of this Partial runs over the expert's copies, and
/// over no device that has other experts.

#include "05_expert/dispatch.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/layouts/mesh.hpp"
#include "engine/workloads/mixture/model.hpp"

namespace shard::meshes {

class ExpertCopies {
 public:
  /// The inputs of all layers of my experts.
  using Inputs = std::vector<Sharded<0>>;

  explicit ExpertCopies(Mesh& mesh) : owners_(&mesh.axis("expert")), copies_(&mesh.axis("data")) {}

  void load(const Checkpoint& checkpoint, const MixtureModel& model) {
    model_ = model;
    mine_ = part(model_.num_experts, owners_->num_devices(), owners_->device_id());
    layers_.clear();
    for_mine(
        [&](Index e, Index l) { layers_.emplace_back(*copies_, checkpoint.whole(expert_layer_name(e, l))); });
  }
  void add_to(Trainables& all) {
    for_mine([&](Index e, Index l) { all.add(expert_layer_name(e, l), layer(e, l)); });
  }

  /// The devices along expert, which have all experts once.
  Communicator& owners() const { return *owners_; }
  int number() const { return copies_->num_devices(); }
  /// The choices of the tokens on these devices. All devices follow one another in the order of their tokens.
  RoutedCounts of_my_copy(const RoutedCounts& all) const {
    return all.of_devices(first_device(), owners_->num_devices());
  }

  /// ## Forward
  /// Each of my experts works on its rows. Row i of the result is the answer to row i of `tokens`.
  Tensor forward(Tensor tokens, const RoutedCounts& counts, const expert::Route& route, Inputs& inputs) {
    Tensor y = Tensor::uninitialized({route.arriving, model_.width(model_.num_layers)});  // (m, D)
    for (Index e = mine_.begin; e < mine_.end; ++e) {
      Sharded<0> a = my_rows(gather_rows(tokens, rows_for(e, route)), e, counts);  // (m_e, D)
      for (Index l = 0; l < model_.num_layers; ++l) {
        if (relu_before(l)) a = relu(std::move(a));  // (m_e, F)
        Sharded<0> out = matmul(a, layer(e, l));     // (m_e, F) or (m_e, D)   S0·R = S0
        inputs.push_back(std::move(a));
        a = std::move(out);
      }
      scatter_rows(a.local(), rows_for(e, route), y);
    }
    return y;
  }

  /// ## Backward
  /// Adds the gradients of all experts to `gradients`; of those that are not mine, they say whose they are.
  /// Writes the gradient of the tokens into `dtokens`, if it is wanted.
  /// If no token of any device is for an expert, its gradient is 0 on all copies, and is not sent.
  void backward(ShardedEngine& engine, Tensor dy, const RoutedCounts& counts, const expert::Route& route,
                Inputs& inputs, Tensor* dtokens, Gradients& gradients) {
    for (Index e = 0; e < model_.num_experts; ++e)
      for (Index l = 0; l < model_.num_layers; ++l)
        if (e < mine_.begin || e >= mine_.end) put(e, l, Tensor(), gradients);
    for (Index e = mine_.begin; e < mine_.end; ++e) {
      if (counts.kept_for(e) == 0) {
        for (Index l = 0; l < model_.num_layers; ++l) put(e, l, Tensor(model_.shape(l)), gradients);
        continue;
      }
      Sharded<0> d = my_rows(gather_rows(dy, rows_for(e, route)), e, counts);  // (m_e, D)
      for (Index l = model_.num_layers - 1; l >= 0; --l) {
        Sharded<0>& a = inputs[at(e, l)];                             // (m_e, D) or (m_e, F)
        Replicated dw = engine.all_reduce(matmul(transposed(a), d));  // S0ᵀ·S0 = P → R, over the copies
        put(e, l, std::move(dw).local(), gradients);                  // like the weights
        if (l > 0 || dtokens != nullptr) d = matmul(d, transposed(layer(e, l)));  // like a
        if (relu_before(l)) d = relu_backward(std::move(d), a);
        a = Sharded<0>();
      }
      if (dtokens != nullptr) scatter_rows(d.local(), rows_for(e, route), *dtokens);
    }
  }

 private:
  template <class F>
  void for_mine(F&& f) const {
    for (Index e = mine_.begin; e < mine_.end; ++e)
      for (Index l = 0; l < model_.num_layers; ++l) f(e, l);
  }
  int first_device() const { return copies_->device_id() * owners_->num_devices(); }
  std::size_t at(Index e, Index l) const {
    return static_cast<std::size_t>((e - mine_.begin) * model_.num_layers + l);
  }
  Replicated& layer(Index e, Index l) { return layers_[at(e, l)]; }
  const std::vector<Index>& rows_for(Index e, const expert::Route& route) const {
    return route.rows[static_cast<std::size_t>(e - mine_.begin)];
  }
  /// Rows on which my copy of an expert works. Those of the other copies stand before and after them.
  Sharded<0> my_rows(Tensor rows, Index e, const RoutedCounts& counts) const {
    Index before = 0;
    for (int d = 0; d < first_device(); ++d) before += counts.kept_from(d, e);
    Shape global{counts.kept_for(e), rows.extent(1)};
    return Sharded<0>(*copies_, std::move(rows), std::move(global), before);
  }
  /// Along expert, one device owns an expert's gradient. Along data, each copy has the same.
  void put(Index e, Index l, Tensor dw, Gradients& gradients) const {
    const int owner = part_with(model_.num_experts, owners_->num_devices(), e);
    Placed placed = Owned(*owners_, std::move(dw), model_.shape(l), owner);
    gradients.put(expert_layer_name(e, l), std::move(placed).copied_over(*copies_));
  }

  Communicator* owners_;
  Communicator* copies_;
  MixtureModel model_;
  Range mine_;                      // my experts
  std::vector<Replicated> layers_;  // (D, F), (F, D), ... of my experts
};

}  // namespace shard::meshes
