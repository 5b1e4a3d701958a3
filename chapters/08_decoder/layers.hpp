#pragma once

///     ./chapters/run 08 -n 4 train --variant layers --split bytes --micro-batches 8
///
/// The blocks are divided, as in a pipeline: each device has some, which follow one another. The embedding is
/// with the first blocks, the last norm and the head are with the last ones. Activations go from device to
/// device, and their gradients go back. The sequences of a batch follow one another in micro-batches, so that
/// all devices have work (1F1B: Narayanan et al. 2019, "PipeDream", section 3.2). In inference, each device
/// takes the next request while later devices still work on earlier ones.
/// Builds on: 08_decoder/single.hpp, 04_pipeline.

#include "engine/schedules/checker.hpp"
#include "engine/schedules/timeline.hpp"
#include "layers_requests.hpp"
#include "layers_split.hpp"
#include "layers_worker.hpp"

namespace shard::decoders {

class LayersDecoder : public LanguageModel {
 public:
  /// `split`: see split_blocks.
  LayersDecoder(Communicator& group, const DecoderModel& model, const std::string& split, Index micro_batches)
      : LanguageModel(group),
        parts_(split_blocks(model, num_devices(), split)),
        stage_{model, parts_[static_cast<std::size_t>(device_id())]},
        schedule_(with_messages(num_devices(), micro_batches,
                                one_forward_one_backward(num_devices(), micro_batches))) {
    check(schedule_);
    stage_.show_logits = [this](const Tensor& z, const Tokens& t) { show_logits(z, t); };
    stage_.cache = &cache();
    stage_.note_choice = [this](Index b, const ExpertChoice& of, const Tokens& t) { note_choice(b, of, t); };
  }

  /// ## What this device owns
  /// Its blocks, whole. Of other parameters it knows the shape and the owner. A table that is used twice is
  /// the first device's, and the last one has a copy.
  void load_checkpoint(const Checkpoint& c) override {
    int owner = 0;
    auto load = [&](const std::string& name, Owned& p) { p = load_owned(c, name, owner); };
    load(embedding_name(), stage_.w.embedding);
    stage_.w.blocks.resize(static_cast<std::size_t>(stage_.m.num_blocks));
    for (Index b = 0; b < stage_.m.num_blocks; ++b) {
      while (b == parts_[static_cast<std::size_t>(owner)].end) ++owner;
      for_each_parameter(stage_.m, b, stage_.w.blocks[static_cast<std::size_t>(b)], load);
    }
    load(final_norm_name(), stage_.w.final_norm);
    if (!stage_.m.is_tied || has_copy())
      load(stage_.m.is_tied ? embedding_name() : head_name(), stage_.w.own_head);
  }

  /// ## Forward
  /// The whole batch goes through the stages as one micro-batch.
  Placed forward(Tensor input) override {
    auto worker = std::make_unique<StageWorker>(begin(input, 1));
    worker->run(one_batch(Action::Kind::forward), {});
    const Shape shape = {worker->rows(), 1};  // (T, 1)
    Owned losses(group(), device_id() == last() ? worker->take_output() : Tensor(), shape, last());
    tape_.push(std::move(worker));
    return losses;
  }

  /// ## Backward
  Gradients backward(Tensor dloss) override {
    auto [worker] = tape_.pop();
    if (device_id() == last()) worker->give_output_grad(std::move(dloss));  // (T, 1)
    worker->run(one_batch(Action::Kind::backward), {});
    return gradients_of(worker->gradients());
  }

  /// ## A step by its schedule
  /// Training uses this: all devices work at the same time, on different micro-batches.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    StageWorker worker = begin(input, schedule_.micro_batches);
    worker.run(schedule_, loss_gradient);
    return gradients_of(worker.gradients());
  }

  /// ## The step
  /// The first device updates a table that is used twice, and the last one takes the new one over.
  Trainables trainable() override { return trainables(stage_.m, stage_.w); }
  void after_step() override {
    if (!has_copy()) return;
    if (device_id() == 0) send(last(), stage_.w.embedding.local());
    if (device_id() == last()) assign(Rows(stage_.w.own_head.parameter()), receive(0));
  }

  /// ## Inference
  /// Device 0 sends off one request more than there are devices before it waits for the first result.
  void inference_loop(InputStream& input, OutputStream& output) override {
    InferenceMode no_tape;
    Requests requests(group(), stage_, input);
    Index due = 0;  // results that device 0 has not taken yet
    auto write_result = [&] { output.write(requests.take_result()), --due; };
    while (std::optional<Request> request = requests.next()) {
      StageKept kept{.tokens = std::move(request->tokens)};
      Owned x = stage_.forward(std::move(request->x), kept);  // (T, D) or (T, 1)
      requests.pass_on(kept.tokens, std::move(x));
      if (stage_.is_first() && ++due > num_devices()) write_result();
    }
    while (due > 0) write_result();
    requests.finish();
  }

  Placement input_layout() const override { return Placement::owned(0); }
  std::string describe_step() override { return describe(schedule_); }

 private:
  int last() const { return num_devices() - 1; }
  /// Whether the last device has a copy of the first one's table.
  bool has_copy() const { return stage_.m.is_tied && num_devices() > 1; }

  /// Only device 0 has the input. It tells the others the sizes, and the last one the labels.
  StageWorker begin(const Tensor& input, Index micro_batches) {
    forget_choices();
    const Index sequences = group().exchange("sequences of the input", input.extent(0))[0];
    const Index length =
        group().exchange("tokens of a sequence", stage_.is_first() ? input.extent(1) / 2 : 0)[0];
    Tokens tokens;
    if (stage_.is_first()) {
      tokens = Tokens::read(input, stage_.m.vocabulary);
      if (!stage_.is_last()) send(last(), labels_of(tokens));
    } else {
      tokens = tokens_of(sequences, length, stage_.is_last() ? receive(0) : Tensor());
    }
    return {group(), stage_, placed(std::move(tokens)), micro_batches};
  }

  /// A schedule that takes one micro-batch forward through all stages, or backward through all.
  Schedule one_batch(Action::Kind kind) const {
    Work work;
    for (int d = 0; d < num_devices(); ++d) work.push_back({{kind, 0, d}});
    return with_messages(num_devices(), 1, work);
  }

  /// The gradients by name, with their owners. A device lists every gradient, also those of other devices. The
  /// two gradients of a table that is used twice are added on the first device.
  Gradients gradients_of(OwnedWeights& dw) {
    if (has_copy() && stage_.is_last()) send(0, dw.own_head.local());
    if (has_copy() && stage_.is_first()) accumulate(dw.embedding, Owned::mine(group(), receive(last())));
    if (stage_.m.is_tied && !has_copy()) accumulate(dw.embedding, std::move(dw.own_head));
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

  std::vector<Range> parts_;  // blocks of each device
  Stage stage_;
  Schedule schedule_;
  Tape<std::unique_ptr<StageWorker>> tape_;
};

}  // namespace shard::decoders
