#pragma once

///     ./chapters/run 08 -n 4 train --variant layers --split bytes --micro-batches 8
///
/// The blocks are divided, as in a pipeline: each device has some, which follow one another. The embedding is
/// with the first blocks, the last norm and the head are with the last ones. Activations go from device to
/// device, and their gradients go back. The sequences of a batch follow one another in micro-batches, so that
/// all devices have work (1F1B: Narayanan et al. 2019, "PipeDream", section 3.2). In inference, each device
/// takes the next request while later devices still work on earlier ones.
/// Builds on: 08_decoder/single.hpp, 04_pipeline.

#include "engine/schedules/staged_engine.hpp"
#include "layers_stage.hpp"

namespace shard::decoders {

/// The embedding lies with the first block, and the last norm and the head with the last one.
inline std::vector<Range> split_blocks(const DecoderModel& m, int devices, const std::string& how) {
  std::vector<Index> elements(static_cast<std::size_t>(m.num_blocks), elements_of(m, block_name(0, "")));
  const Index table = m.vocabulary * m.model_dim;
  elements.front() += table;
  elements.back() += m.model_dim + table;  // a copy, where the embedding is the head
  return split_blocks(elements, devices, how);
}

class LayersDecoder : public StagedEngine<StagePart, LanguageModel> {
 public:
  /// `split`: see split_blocks.
  LayersDecoder(Communicator& group, const DecoderModel& model, const std::string& split, Index micro_batches)
      : StagedEngine(group),
        parts_(split_blocks(model, num_devices(), split)),
        stage_{*this, model, parts_[static_cast<std::size_t>(device_id())]} {
    micro_batches_ = micro_batches;
    set_schedule(micro_batches, one_forward_one_backward(num_devices(), micro_batches));
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
    Conveyor conveyor(group(), 2 * num_devices());
    Index due = 0;  // results that device 0 has not taken yet
    auto write_result = [&] { output.write(conveyor.take_from(last())), --due; };
    while (std::optional<Request> request = next_request(group(), stage_, input, conveyor)) {
      StageKept kept{.tokens = std::move(request->tokens)};
      Owned x = stage_.forward(std::move(request->x), kept);  // (T, D) or (T, 1)
      pass_on(group(), stage_, kept.tokens, std::move(x), conveyor);
      if (stage_.is_first() && ++due > num_devices()) write_result();
    }
    while (due > 0) write_result();
    conveyor.finish();
  }

  Placement input_layout() const override { return Placement::owned(0); }

 private:
  int last() const { return num_devices() - 1; }
  /// Whether the last device has a copy of the first one's table.
  bool has_copy() const { return stage_.m.is_tied && num_devices() > 1; }

  /// Only device 0 has the input. It tells the others the sizes, and the last one the labels.
  Worker begin(Tensor& input, Index micro_batches) override {
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
    return {group(), {group(), stage_, placed(std::move(tokens)), micro_batches}};
  }

  Placed output_of(Worker& worker) override {
    Tensor mine = stage_.is_last() ? worker.take_output().local() : Tensor();
    return Owned(group(), std::move(mine), {worker.part.batch.rows(), 1}, last());  // (T, 1)
  }
  Owned output_gradient_of(StagePart& part, Tensor dlosses) override { return part.of(std::move(dlosses)); }
  /// The two gradients of a table that is used twice are added on the first device.
  Gradients gradients_of(StagePart& part) override {
    OwnedSums& sums = part.sums;
    Owned &dtable = sums[embedding_name()], &dhead = sums[head_name()];
    if (has_copy() && stage_.is_last()) send(0, dhead.local());
    if (has_copy() && stage_.is_first()) accumulate(dtable, Owned::mine(group(), receive(last())));
    if (stage_.m.is_tied && !has_copy()) accumulate(dtable, std::move(dhead));
    return decoders::gradients_of(stage_.m, stage_.w, sums);
  }

  std::vector<Range> parts_;  // blocks of each device
  Stage stage_;
};

}  // namespace shard::decoders
