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

#include "engine/schedules/checker.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/schedules/timeline.hpp"
#include "five_stage.hpp"

namespace shard::meshes {

template <class K>
class Five : public FiveEngine {
 public:
  Five(Communicator& group, const MeshShape& shape, const DecoderModel& model, decoders::CutSequences cut,
       Index micro_batches)
      : FiveEngine(group, shape, model),
        stage_{*this, model, FiveAsking<K>(*this, model),
               part(model.num_blocks, places(), along_pipeline().device_id())},
        cut_(cut),
        micro_batches_(micro_batches),
        schedule_(schedule_of(micro_batches)) {}

  /// ## What this device owns
  /// Of its stage: its heads, hidden units and rows of the vocabulary, its experts, and norms and routers. A
  /// table that is used twice is the first stage's, and the last one has a copy.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_of_network(
        m_, [&](const FiveParameter& of, auto& p) { load_part(p, c, of); }, stage_.w);
    if (has_copy()) load_part(stage_.w.own_head, c, {embedding_name(), m_.num_blocks - 1});
  }

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch. All losses leave the engine, in the order of
  /// the sequences: (B S, 1). They are few numbers.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<Worker>(begin(std::move(input), 1));
    worker->run(one_micro_batch(Action::Kind::forward, places(), places()), {});
    const FiveBatch& batch = worker->part.batch;
    const Shape shape = {batch.all_rows(), 1};
    auto losses = OnFive<R, O, R, R, R>::elsewhere(mesh(), shape, places() - 1);
    if (stage_.is_last()) {
      Communicator& others = mesh().joined({data::name, context::name, experts::name});
      const Tensor all = others.all_gather_async(worker->take_output().local(), 0).get();
      Tensor in_order = Tensor::uninitialized(shape);
      scatter_rows(all, batch.rows_of_all(), in_order);
      losses = OnFive<R, O, R, R, R>(mesh(), std::move(in_order), shape);
    }
    tape_.push(std::move(worker));
    return losses;
  }

  /// ## Backward
  Gradients backward(Tensor dlosses) override {
    auto [worker] = tape_.pop();
    FivePart<K>& part = worker->part;
    if (stage_.is_last())
      worker->give_output_grad(part.of_piece(gather_rows(dlosses, part.batch.my_rows()), 0));  // (t, 1)
    worker->run(one_micro_batch(Action::Kind::backward, places(), places()), {});
    return gradients_of(part.addends);
  }

  /// ## A step by its schedule
  /// Training uses this: all stages work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    Worker worker = begin(std::move(input), micro_batches_);
    schedule_ = schedule_of(worker.part.batch.micro_batches());
    worker.run(schedule_, loss_gradient);
    return gradients_of(worker.part.addends);
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
    if (stage_.is_first()) along_pipeline().send(places() - 1, stage_.w.embedding.local());
    if (stage_.is_last()) assign(Rows(stage_.w.own_head.parameter()), along_pipeline().receive(0));
  }

  /// My sequences, whole. Every stage has them: the first one reads ids, and the last one labels.
  Placement input_layout() const override { return placement<S<0>, R, R, S<0>, R>(); }
  std::string describe_step() override {
    return "device k: all devices at place k of the axis pipeline\n" + describe(schedule_);
  }

 private:
  using Worker = StageWorker<FivePart<K>>;

  Worker begin(Tensor input, Index micro_batches) {
    constexpr Index at_a_time = 32;  // tokens that one device takes, where a sequence goes on token by token
    forget_choices();
    const auto rows = from_outside<S<0>, R, R, S<0>, R>(std::move(input));  // (b, 2 S)
    const Index first_position = next_position();
    Tokens tokens = read(rows.local(), m_.vocabulary);
    tokens.first_sequence = rows.ranges()[0].begin;
    decoders::SequenceCut cut =
        cut_(tokens.sequences, tokens.length, mesh().size(context::name)).turned(first_position / at_a_time);
    cut.first_position = first_position;
    FiveBatch batch(mesh(), std::move(tokens), rows.global_shape()[0], std::move(cut),
                    first_position > 0 ? std::move(keys_) : decoders::KeysOnRing(), micro_batches);
    keys_ = batch.keys();
    return {along_pipeline(), {stage_, std::move(batch), {}}};
  }
  Schedule schedule_of(Index micro_batches) {
    Schedule schedule =
        with_messages(places(), micro_batches, one_forward_one_backward(places(), micro_batches));
    check(schedule);
    return schedule;
  }

  /// The gradients by name. Those of other stages, and of other devices' experts, are absent here. The two
  /// gradients of a table that is used twice are added at the first stage.
  Gradients gradients_of(FiveAddends<K>& dw) {
    FiveWeights<K>& w = stage_.w;
    if (m_.is_tied && !has_copy()) accumulate(dw.embedding, std::move(dw.own_head));
    if (has_copy() && stage_.is_last())
      along_pipeline().send(0, reduced(std::move(dw.own_head), w.own_head).local());
    Gradients gradients;
    for_each_of_network(
        m_,
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
  decoders::CutSequences cut_;
  Index micro_batches_;
  Schedule schedule_;          // of the last step
  decoders::KeysOnRing keys_;  // of the last forward pass
  Tape<std::unique_ptr<Worker>> tape_;
};

}  // namespace shard::meshes
