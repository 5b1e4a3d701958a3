#pragma once

/// The parameters of a decoder on five axes: which part of each a device has, and over which axes its
/// gradient is a sum. The letters of a parameter say both. (Part of five.hpp.)

#include "five_stage.hpp"

namespace shard::meshes {

/// An engine with the parameters of its stage.
template <class K>
class FiveParameters : public FiveEngine {
 public:
  FiveParameters(Communicator& group, const MeshShape& shape, const DecoderModel& model)
      : MeshEngine(group, shape),
        stage_{.here = {*this, model, cache(),
                        [this](const Tensor& z, const Tokens& t, Index first) { show_logits(z, t, first); },
                        [this](Index b, const ExpertChoice& of, const Tokens& t) { note_choice(b, of, t); }},
               .blocks = part(model.num_blocks, places(), mesh().place(pipeline::name))} {
    mesh().keep_whole(tensor::name, TensorHeads(model, mesh().size(tensor::name)).pieces());
    mesh().axes({data::name, context::name, experts::name});  // the copies of a weight
    mesh().axes({data::name, context::name});                 // the copies of an expert
    mesh().axes({pipeline::name, experts::name});             // the places where an expert may lie
  }

  /// ## What this device owns
  /// Of its stage: its heads, hidden units and rows of the vocabulary, its experts, and norms and routers. A
  /// table that is used twice is the first stage's, and the last one has a copy.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_of_network(
        model(), [&](const FiveParameter& of, auto& p) { load_part(p, c, of); }, stage_.w);
    if (has_copy()) load_part(stage_.w.own_head, c, {embedding_name(), model().num_blocks - 1});
  }

  /// ## The step
  /// The first stage updates a table that is used twice, and the last one takes the new one over.
  Trainables trainable() override {
    Trainables mine;
    for_each_of_network(
        model(),
        [&](const FiveParameter& of, auto& p) {
          if (p.is_mine()) mine.add(of.name, p);
        },
        stage_.w);
    return mine;
  }
  void after_step() override {
    if (!has_copy()) return;
    if (stage_.is_first()) along_pipeline().send(places() - 1, stage_.w.embedding.local());
    if (stage_.is_last()) assign(Rows(stage_.w.own_head.parameter()), along_pipeline().receive(0));
  }

 protected:
  const DecoderModel& model() const { return stage_.here.m; }
  /// Places on the axis pipeline.
  int places() { return mesh().size(pipeline::name); }

  /// The gradients by name. Those of other stages, and of other devices' experts, are absent here. The two
  /// gradients of a table that is used twice are added at the first stage.
  Gradients gradients_of(FiveAddends<K>& dw) {
    FiveWeights<K>& w = stage_.w;
    if (model().is_tied && !has_copy()) accumulate(dw.embedding, std::move(dw.own_head));
    if (has_copy() && stage_.is_last())
      along_pipeline().send(0, reduced(std::move(dw.own_head), w.own_head).local());
    Gradients gradients;
    for_each_of_network(
        model(),
        [&](const FiveParameter& of, auto& sum, const auto& like) {
          gradients.put(of.name, reduced(std::move(sum), like));
        },
        dw, w);
    if (has_copy() && stage_.is_first()) {
      Tensor both = add(along_pipeline().receive(places() - 1), gradients.local(embedding_name()));
      gradients.put(embedding_name(), Weight<S<0>>(mesh(), std::move(both), w.embedding.global_shape()));
    }
    return gradients;
  }
  FiveStage<K> stage_;

 private:
  Communicator& along_pipeline() { return mesh().axis(pipeline::name); }
  /// Whether the last stage has a copy of the first one's table.
  bool has_copy() { return model().is_tied && places() > 1; }

  /// \name A part of a parameter, where it lies
  /// @{
  template <class T>
  void load_part(Weight<T>& p, const Checkpoint& c, const FiveParameter& of) {
    p = load_at<R, O, R, R, T>(place_of(of), c, of.name);
  }
  template <class T>
  void load_part(ExpertWeight<T>& p, const Checkpoint& c, const FiveParameter& of) {
    const int along_expert = mesh().size(experts::name);
    const int owner = place_of(of) * along_expert + part_with(model().experts, along_expert, of.expert);
    p = load_at<R, O, R, O, T>(owner, c, of.name);
  }
  int place_of(const FiveParameter& of) { return part_with(model().num_blocks, places(), of.block); }
  /// @}

  /// \name The gradient of a weight, summed over the axes on which it has copies
  /// @{
  template <class T>
  Weight<T> reduced(Addend<T> sum, const Weight<T>& w) {
    if (!w.is_mine()) return Weight<T>::elsewhere(mesh(), w.global_shape(), w.owner());
    return all_reduce<data, context, experts>(std::move(sum));  // (P, O, P, P, T) → (R, O, R, R, T)
  }
  template <class T>
  ExpertWeight<T> reduced(ExpertAddend<T> sum, const ExpertWeight<T>& w) {
    if (!w.is_mine()) return ExpertWeight<T>::elsewhere(mesh(), w.global_shape(), w.owner());
    return all_reduce<data, context>(std::move(sum));  // (P, O, P, O, T) → (R, O, R, O, T)
  }
  /// @}
};

}  // namespace shard::meshes
