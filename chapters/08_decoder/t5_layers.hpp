#pragma once

///     ./chapters/run 08 -n 4 train --variant t5-layers --split bytes --micro-batches 8
///
/// An encoder-decoder by its blocks, as a pipeline: first the encoder's, and then the decoder's. Each device
/// has some that follow one another. Micro-batches follow one another by the schedule 1F1B (Narayanan et al.
/// 2019, "PipeDream", section 3.2).
///
/// Every block of the decoder reads what the encoder returned. It travels along the pipeline beside the
/// decoder's activations, and its gradient comes back in the same way: each device adds what its blocks add.
/// So the encoder's last device sends it once, and takes one sum; and devices talk to their neighbours alone.
/// Behind the decoder's first device, a message is (T_e + T) D elements each way, not T D, and a device holds
/// T_e D more until its copy has left. Sent to each device directly, it would be as many bytes in all, but all
/// of them from one device.
/// Builds on: 08_decoder/t5_single.hpp, 08_decoder/layers.hpp.

#include "engine/schedules/checker.hpp"
#include "engine/schedules/timeline.hpp"
#include "t5_worker.hpp"

namespace shard::decoders {

class T5Layers : public LanguageModel {
 public:
  /// `split`: see T5Split.
  T5Layers(Communicator& group, const T5Model& model, const std::string& split, Index micro_batches)
      : LanguageModel(group),
        stage_{model, T5Split(model, num_devices(), split), device_id()},
        schedule_(with_messages(num_devices(), micro_batches,
                                one_forward_one_backward(num_devices(), micro_batches))) {
    check(schedule_);
    stage_.cache = &cache();
    stage_.show_logits = [this](const Tensor& z, const Tokens& t) { show_logits(z, t); };
  }

  /// ## What this device owns
  /// Its blocks, whole. Of other parameters it knows the shape and the owner. The embedding is read by the
  /// first block of each stack, and by the head where that is the same table. The bias of a stack is read by
  /// all of its blocks. The first device that reads such a table owns it, and the others have copies.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(stage_.m, stage_.w,
                       [&](const std::string& name, Owned& p) { p = load_owned(c, name, owner_of(name)); });
    for (const auto& [table, owner, reader] : stage_.split.copies())
      if (reader == device_id()) stage_.copy(table) = load_owned(c, table_name(table), reader);
  }

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<T5StageWorker>(begin(input, 1));
    worker->run(one_batch(Action::Kind::forward), {});
    const Shape shape = {worker->rows(), 1};  // (T, 1)
    const int last = stage_.split.last();
    Owned losses(group(), stage_.is_last() ? worker->take_output() : Tensor(), shape, last);
    tape_.push(std::move(worker));
    return losses;
  }

  /// ## Backward
  Gradients backward(Tensor dloss) override {
    auto [worker] = tape_.pop();
    if (stage_.is_last()) worker->give_output_grad(std::move(dloss));  // (T, 1)
    worker->run(one_batch(Action::Kind::backward), {});
    return gradients_of(worker->gradients());
  }

  /// ## A step by its schedule
  /// Training uses this: all devices work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    T5StageWorker worker = begin(input, schedule_.micro_batches);
    worker.run(schedule_, loss_gradient);
    return gradients_of(worker.gradients());
  }

  /// ## The step
  /// A table's owner updates it, and the copies become the new one.
  Trainables trainable() override { return trainables(stage_.m, stage_.w); }
  void after_step() override {
    for (const auto& [table, owner, reader] : stage_.split.copies()) {
      if (owner == device_id()) send(reader, own_table(stage_.w, table).local());
      if (reader == device_id()) assign(Rows(stage_.copy(table).parameter()), receive(owner));
    }
  }

  /// Tokens are few numbers, and several devices need some of them. So every device is given all.
  Placement input_layout() const override { return Placement::replicated(); }
  std::string describe_step() override { return describe(schedule_); }

 private:
  /// The device that owns a parameter.
  int owner_of(const std::string& name) const {
    for (Table table : all_tables)
      if (name == table_name(table)) return stage_.split.readers(table)[0];
    for (Side side : {Side::encoder, Side::decoder})
      for (int d = 0; d < num_devices(); ++d)
        for (Index b = stage_.split.blocks(side, d).begin; b < stage_.split.blocks(side, d).end; ++b)
          if (name.starts_with(t5_name(side, b, ""))) return d;
    const bool is_of_encoder = name == t5_name(Side::encoder, "final_norm");
    return stage_.split.device_of_last(is_of_encoder ? Side::encoder : Side::decoder);
  }

  /// A batch on its way: micro-batches that follow one another.
  T5StageWorker begin(const Tensor& input, Index micro_batches) {
    return {group(), stage_, read_with_source(input, stage_.m.vocabulary), micro_batches};
  }

  /// A schedule that takes one micro-batch forward through all stages, or backward through all.
  Schedule one_batch(Action::Kind kind) const {
    Work work;
    for (int d = 0; d < num_devices(); ++d) work.push_back({{kind, 0, d}});
    return with_messages(num_devices(), 1, work);
  }

  /// The gradients by name, with their owners. A device lists every gradient, also those of other devices.
  Gradients gradients_of(T5OwnedWeights& dw) {
    for (const auto& [table, owner, reader] : stage_.split.copies()) {
      Owned& sum = own_table(dw, table);
      if (reader == device_id()) send(owner, sum.local());
      if (owner == device_id()) accumulate(sum, Owned::mine(group(), receive(reader)));
    }
    std::vector<Owned*> sums;
    for_each_parameter(stage_.m, dw, [&](const std::string&, Owned& sum) { sums.push_back(&sum); });
    Gradients gradients;
    auto next = sums.begin();
    for_each_parameter(stage_.m, stage_.w, [&](const std::string& name, const Owned& p) {
      Owned& mine = **next++;
      gradients.put(name,
                    p.is_mine() ? std::move(mine) : Owned(group(), Tensor(), p.global_shape(), p.owner()));
    });
    return gradients;
  }

  T5Stage stage_;
  Schedule schedule_;
  Tape<std::unique_ptr<T5StageWorker>> tape_;
};

}  // namespace shard::decoders
