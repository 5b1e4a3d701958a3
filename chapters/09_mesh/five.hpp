#pragma once

///     ./chapters/run 09 -n 8 train --variant five --mesh data=1,pipeline=2,context=2,expert=1,tensor=2
///
/// A decoder on a mesh of five axes. Sequences are divided over data and expert, the positions of each
/// sequence over context, blocks over pipeline, heads, hidden units and the vocabulary over tensor, and the
/// experts of a mixture over expert (Singh et al. 2023, "A Hybrid Tensor-Expert-Data Parallelism Approach";
/// Llama Team 2024, "The Llama 3 Herd of Models", section 3.3.2). Any axis may have one device. Without
/// experts, the axis expert is a second axis data. A gradient is a sum over the axes on which its weight
/// has copies, and the letters say which: data, context and expert, or data and context for an expert's.
/// Builds on: 08_decoder/tensor.hpp, 08_decoder/context.hpp, 08_decoder/experts.hpp, 08_decoder/layers.hpp.

#include "five_stage.hpp"

namespace shard::meshes {

template <class K>
class Five : public StagedEngine<FivePart<K>, FiveEngine> {
  using Staged = StagedEngine<FivePart<K>, FiveEngine>;
  using Staged::has_copy, Staged::is_at_end, Staged::m_, Staged::mesh, Staged::places;
  using typename Staged::Worker;

 public:
  Five(Communicator& group, const MeshShape& shape, const DecoderModel& model, decoders::CutSequences cut,
       Index micro_batches)
      : Staged(group, shape, model, cut),
        stage_{*this, model, FiveDivision<K>(*this, model),
               part(model.num_blocks, places(), mesh().place(pipeline::name))} {
    this->micro_batches_ = micro_batches;
    this->set_schedule(micro_batches, one_forward_one_backward(places(), micro_batches));
  }

  /// ## What this device owns
  /// Of its stage: its heads, hidden units and rows of the vocabulary, its experts, and norms and routers. A
  /// table that is used twice is the first stage's, and the last one has a copy.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_of_network(
        m_, [&](const FiveParameter& of, auto& p) { this->load_part(p, c, of); }, stage_.w);
    if (has_copy()) this->load_part(stage_.w.own_head, c, {embedding_name(), m_.num_blocks - 1});
  }

  /// ## The step
  /// The first stage updates a table that is used twice, and the last one takes the new one over.
  Trainables trainable() override {
    Trainables mine;
    for_each_of_blocks(
        m_, stage_.blocks,
        [&](const FiveParameter& of, auto& p) {
          if (p.is_mine()) mine.add(of.name, p);
        },
        stage_.w);
    return mine;
  }
  void after_step() override {
    if (!has_copy()) return;
    if (stage_.is_first()) along().send(places() - 1, stage_.w.embedding.local());
    if (stage_.is_last()) assign(Rows(stage_.w.own_head.parameter()), along().receive(0));
  }

  std::string describe_step() override {
    return "device k: all devices at place k of the axis pipeline\n" + Staged::describe_step();
  }

 private:
  Worker begin(Tensor& input, Index micro_batches) override {
    return {along(), {stage_, this->batch_of(std::move(input), micro_batches), {}}};
  }
  Communicator& along() override { return mesh().axis(pipeline::name); }
  void before_step(const FivePart<K>& part) override {
    const Index m = part.batch.micro_batches();
    this->set_schedule(m, one_forward_one_backward(places(), m));
  }
  /// All losses, in the order of the sequences: (B S, 1). They are few numbers.
  Placed output_of(Worker& worker) override {
    const FiveBatch& batch = worker.part.batch;
    const Shape shape = {batch.all_rows(), 1};
    if (!is_at_end()) return OnFive<R, O, R, R, R>::elsewhere(mesh(), shape, places() - 1);
    Communicator& others = mesh().joined({data::name, context::name, experts::name});
    const Tensor all = others.all_gather_async(worker.take_output().local(), 0).get();
    Tensor in_order = Tensor::uninitialized(shape);
    scatter_rows(all, batch.rows_of_all(), in_order);
    return OnFive<R, O, R, R, R>(mesh(), std::move(in_order), shape);
  }
  Activation<R> output_gradient_of(FivePart<K>& part, Tensor dlosses) override {
    return part.of_piece(gather_rows(dlosses, part.batch.my_rows()), 0);  // (t, 1)
  }
  /// The gradients by name. Those of other stages, and of other devices' experts, are absent here. The two
  /// gradients of a table that is used twice are added at the first stage.
  Gradients gradients_of(FivePart<K>& part) override {
    FiveAddends<K>& dw = part.addends;
    FiveWeights<K>& w = stage_.w;
    if (m_.is_tied && !has_copy()) accumulate(dw.embedding, std::move(dw.own_head));
    if (has_copy() && stage_.is_last())
      along().send(0, this->reduced(std::move(dw.own_head), w.own_head).local());
    Gradients gradients;
    for_each_of_network(
        m_,
        [&](const FiveParameter& of, auto& sum, const auto& like) {
          gradients.put(of.name, this->reduced(std::move(sum), like));
        },
        dw, w);
    if (has_copy() && stage_.is_first()) {
      Tensor both = add(along().receive(places() - 1), gradients.local(embedding_name()));
      gradients.put(embedding_name(), Weight<S<0>>(mesh(), std::move(both), w.embedding.global_shape()));
    }
    return gradients;
  }

  FiveStage<K> stage_;
};

}  // namespace shard::meshes
