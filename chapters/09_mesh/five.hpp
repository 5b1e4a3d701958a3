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
#include "engine/schedules/timeline.hpp"
#include "five_parameters.hpp"
#include "five_worker.hpp"

namespace shard::meshes {

template <class K>
class Five : public FiveParameters<K> {
 public:
  Five(Communicator& group, const MeshShape& shape, const DecoderModel& model, CutSequences cut,
       Index micro_batches)
      : FiveParameters<K>(group, shape, model),
        cut_(cut),
        micro_batches_(micro_batches),
        schedule_(schedule_of(micro_batches)) {}

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch. All losses leave the engine, in the order of
  /// the sequences: (B S, 1). They are few numbers.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<FiveWorker<K>>(begin(std::move(input), 1));
    worker->run(one_batch(Action::Kind::forward), {});
    const Shape shape = {worker->batch().all_rows(), 1};
    auto losses = OnFive<R, O, R, R, R>::elsewhere(mesh(), shape, places() - 1);
    if (stage_.is_last()) {
      Communicator& others = mesh().joined({data::name, context::name, experts::name});
      const Tensor all = others.all_gather_async(worker->take_losses(), 0).get();
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
    return this->gradients_of(worker->addends());
  }

  /// ## A step by its schedule
  /// Training uses this: all stages work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    FiveWorker<K> worker = begin(std::move(input), micro_batches_);
    schedule_ = schedule_of(worker.micro_batches());
    worker.run(schedule_, loss_gradient);
    return this->gradients_of(worker.addends());
  }

  /// My sequences, whole. Every stage has them: the first one reads ids, and the last one labels.
  Placement input_layout() const override { return this->template placement<S<0>, R, R, S<0>, R>(); }
  std::string describe_step() override {
    return "device k: all devices at place k of the axis pipeline\n" + describe(schedule_);
  }

 private:
  using FiveParameters<K>::mesh, FiveParameters<K>::places, FiveParameters<K>::stage_;

  FiveWorker<K> begin(Tensor input, Index micro_batches) {
    constexpr Index at_a_time = 32;  // tokens that one device takes, where a sequence goes on token by token
    this->forget_choices();
    const auto rows = this->template from_outside<S<0>, R, R, S<0>, R>(std::move(input));  // (b, 2 S)
    const Index first_position = this->next_position();
    Tokens tokens = this->read(rows.local(), this->model().vocabulary);
    tokens.first_sequence = rows.ranges()[0].begin;
    SequenceCut cut =
        cut_(tokens.sequences, tokens.length, mesh().size(context::name)).turned(first_position / at_a_time);
    cut.first_position = first_position;
    FiveBatch batch(mesh(), std::move(tokens), rows.global_shape()[0], std::move(cut),
                    first_position > 0 ? std::move(keys_) : KeysOnRing());
    keys_ = batch.keys();
    return {stage_, std::move(batch), micro_batches};
  }

  Schedule schedule_of(Index micro_batches) {
    Schedule schedule =
        with_messages(places(), micro_batches, one_forward_one_backward(places(), micro_batches));
    check(schedule);
    return schedule;
  }
  /// A schedule that takes one micro-batch forward through all stages, or backward through all.
  Schedule one_batch(Action::Kind kind) {
    Work work;
    for (int p = 0; p < places(); ++p) work.push_back({{kind, 0, p}});
    return with_messages(places(), 1, work);
  }

  CutSequences cut_;
  Index micro_batches_;
  Schedule schedule_;  // of the last step
  KeysOnRing keys_;    // of the last forward pass
  Tape<std::unique_ptr<FiveWorker<K>>> tape_;
};

}  // namespace shard::meshes
