#pragma once

///     ./chapters/run 09 -n 8 train --variant five --mesh data=1,pipeline=2,context=2,expert=1,tensor=2
///
/// A decoder on a mesh of five axes. Sequences are divided over data and expert, the positions of each sequence
/// over context, blocks over pipeline, heads, hidden units and the vocabulary over tensor, and the experts of a
/// mixture over expert (Singh et al. 2023, "A Hybrid Tensor-Expert-Data Parallelism Approach"; Llama Team 2024,
/// "The Llama 3 Herd of Models", section 3.3.2). Any axis may have one device. Without experts, the axis expert
/// is a second axis data. A gradient is a sum over the axes on which its weight has copies, and the letters say
/// which: data, context and expert, or data and context for an expert's.
/// Builds on: 08_decoder/tensor.hpp, 08_decoder/context.hpp, 08_decoder/experts.hpp, 08_decoder/layers.hpp.

#include "engine/schedules/checker.hpp"
#include "engine/schedules/timeline.hpp"
#include "five_worker.hpp"

namespace shard::meshes {

template <class K>
class Five : public FiveEngine {
 public:
  Five(Communicator& group, const MeshShape& shape, const DecoderModel& model, CutSequences cut,
       Index micro_batches)
      : MeshEngine(group, shape),
        cut_(cut),
        stage_{.here = {*this, model, cache(),
                        [this](const Tensor& z, const Tokens& t, Index first) { show_logits(z, t, first); },
                        [this](Index b, const ExpertChoice& of, const Tokens& t) { note_choice(b, of, t); }},
               .blocks = part(model.num_blocks, places(), place())},
        micro_batches_(micro_batches) {
    mesh().keep_whole(tensor::name, TensorHeads(model, mesh().size(tensor::name)).pieces());
    mesh().axes({data::name, context::name, experts::name});  // the copies of a weight
    mesh().axes({data::name, context::name});                 // the copies of an expert
    mesh().axes({pipeline::name, experts::name});             // the places where an expert may lie
  }

  /// ## What this device owns
  /// Of its stage: its heads, hidden units and rows of the vocabulary, its experts, and norms and routers. A
  /// table that is used twice is the first stage's, and the last one has a copy.
  void load_checkpoint(const Checkpoint& c) override {
    FiveWeights<K>& w = stage_.w;
    for_each_of_network(
        stage_.here.m, [&](const FiveParameter& of, auto& p) { load_part(p, c, of); }, w);
    if (has_copy()) load_part(w.own_head, c, {embedding_name(), stage_.here.m.num_blocks - 1});
  }

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch. All losses leave the engine, in the order of
  /// the sequences: (B S, 1). They are few numbers.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<FiveWorker<K>>(begin(std::move(input), 1));
    worker->run(one_batch(Action::Kind::forward), {});
    const Shape shape = {worker->batch().all_rows(), 1};
    auto losses = OnFive<R, O, R, R, R>::elsewhere(mesh(), shape, places() - 1);
    if (stage_.is_last()) {
      const Tensor all = copies_of_weights().all_gather_async(worker->take_losses(), 0).get();
      Tensor in_order = Tensor::uninitialized(shape);
      scatter_rows(all, worker->batch().rows_of_all(), in_order);
      losses = OnFive<R, O, R, R, R>(mesh(), std::move(in_order), shape);
    }
    tape_.push(std::move(worker));
    return losses;
  }

  /// ## Backward
  Gradients backward(Tensor dlosses) override {
    auto [worker] = tape_.pop();
    if (stage_.is_last())
      worker->give_gradient_of_losses(gather_rows(dlosses, worker->batch().my_rows()));  // (t, 1)
    worker->run(one_batch(Action::Kind::backward), {});
    return gradients_of(worker->addends());
  }

  /// ## A step by its schedule
  /// Training uses this: all stages work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    FiveWorker<K> worker = begin(std::move(input), micro_batches_);
    const Index M = worker.micro_batches();
    schedule_ = with_messages(places(), M, one_forward_one_backward(places(), M));
    check(schedule_);
    worker.run(schedule_, loss_gradient);
    return gradients_of(worker.addends());
  }

  /// ## The step
  /// The first stage updates a table that is used twice, and the last one takes the new one over.
  Trainables trainable() override {
    Trainables mine;
    for_each_of_network(
        stage_.here.m,
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

  /// My sequences, whole. Every stage has them: the first one reads ids, and the last one labels.
  Placement input_layout() const override { return placement<S<0>, R, R, S<0>, R>(); }
  std::string describe_step() override {
    return "device k: all devices at place k of the axis pipeline\n" + describe(schedule_);
  }

 private:
  int places() { return mesh().size(pipeline::name); }
  int place() { return mesh().place(pipeline::name); }
  Communicator& along_pipeline() { return mesh().axis(pipeline::name); }
  /// The devices that have the same weights, but for experts.
  Communicator& copies_of_weights() { return mesh().joined({data::name, context::name, experts::name}); }
  /// Whether the last stage has a copy of the first one's table.
  bool has_copy() { return stage_.here.m.is_tied && places() > 1; }

  /// \name A part of a parameter, where it lies
  /// @{
  template <class T>
  void load_part(Weight<T>& p, const Checkpoint& c, const FiveParameter& of) {
    p = load_at<R, O, R, R, T>(place_of(of), c, of.name);
  }
  template <class T>
  void load_part(ExpertWeight<T>& p, const Checkpoint& c, const FiveParameter& of) {
    const int along_expert = mesh().size(experts::name);
    const int owner = place_of(of) * along_expert + part_with(stage_.here.m.experts, along_expert, of.expert);
    p = load_at<R, O, R, O, T>(owner, c, of.name);
  }
  int place_of(const FiveParameter& of) { return part_with(stage_.here.m.num_blocks, places(), of.block); }
  /// @}

  FiveWorker<K> begin(Tensor input, Index micro_batches) {
    constexpr Index at_a_time = 32;  // tokens that one device takes, where a sequence goes on token by token
    forget_choices();
    const auto rows = from_outside<S<0>, R, R, S<0>, R>(std::move(input));  // (b, 2 S)
    const Index first_position = next_position();
    Tokens tokens = read(rows.local(), stage_.here.m.vocabulary);
    tokens.first_sequence = rows.ranges()[0].begin;
    SequenceCut cut =
        cut_(tokens.sequences, tokens.length, mesh().size(context::name)).turned(first_position / at_a_time);
    cut.first_position = first_position;
    FiveBatch batch(mesh(), std::move(tokens), rows.global_shape()[0], std::move(cut),
                    first_position > 0 ? std::move(keys_) : KeysOnRing());
    keys_ = batch.keys();
    return {stage_, std::move(batch), micro_batches};
  }

  /// A schedule that takes one micro-batch forward through all stages, or backward through all.
  Schedule one_batch(Action::Kind kind) {
    Work work;
    for (int p = 0; p < places(); ++p) work.push_back({{kind, 0, p}});
    return with_messages(places(), 1, work);
  }

  /// The gradients by name. Those of other stages, and of other devices' experts, are absent here. The two
  /// gradients of a table that is used twice are added at the first stage.
  Gradients gradients_of(FiveAddends<K>& dw) {
    FiveWeights<K>& w = stage_.w;
    const DecoderModel& m = stage_.here.m;
    if (m.is_tied && !has_copy()) accumulate(dw.embedding, std::move(dw.own_head));
    if (has_copy() && stage_.is_last())
      along_pipeline().send(0, reduced(std::move(dw.own_head), w.own_head).local());
    Gradients gradients;
    for_each_of_network(
        m,
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

  CutSequences cut_;
  FiveStage<K> stage_;
  Index micro_batches_;
  Schedule schedule_;  // of the last step
  KeysOnRing keys_;    // of the last forward pass
  Tape<std::unique_ptr<FiveWorker<K>>> tape_;
};

}  // namespace shard::meshes
