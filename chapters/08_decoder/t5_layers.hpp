#pragma once

///     ./chapters/run 08 -n 4 train --variant t5-layers --split bytes --micro-batches 8
///
/// An encoder-decoder by its blocks, as a pipeline: first the encoder's, and then the decoder's. Each
/// device has some that follow one another.
///
/// Every block of the decoder reads what the encoder returned. It travels along the pipeline beside the
/// decoder's activations, and its gradient comes back in the same way: each device adds what its blocks add.
/// So the encoder's last device sends it once, and takes one sum; and devices talk to their neighbours alone.
/// Behind the decoder's first device, a message is (T_e + T) D elements each way, not T D, and a device holds
/// T_e D more until its copy has left. Sent to each device directly, it would be as many bytes in all, but
/// all of them from one device.
/// Builds on: 08_decoder/t5.hpp, 08_decoder/layers.hpp.

#include "engine/schedules/staged_engine.hpp"
#include "t5_stage.hpp"

namespace shard::decoders {

/// What this device does with the micro-batches of a batch.
struct T5Part {
  using Value = T5Stream<Owned>;
  using Kept = T5Kept<Owned, Owned>;

  const T5Stage<Owned, Owned, Owned>& stage;
  SourceAndTarget batch;
  Index micro_batches;
  OwnedSums sums{};

  Value input(Index) const { return {stage.nothing(), {}}; }
  Value forward(Index m, int, Value x, Kept& kept) const {
    kept.encoder.tokens = batch.source.piece(m, micro_batches);
    kept.decoder.tokens = batch.target.piece(m, micro_batches);
    x = stage.forward(std::move(x), kept);
    if (stage.is_last()) x = {Owned(), stage.losses(kept)};  // (t, 1)
    return x;
  }
  Value backward(Index, int, Value d, Kept kept) {
    auto put = [&](const std::string& name, Owned addend) { accumulate(sums[name], std::move(addend)); };
    Owned& dhead = sums[stage.m.is_tied ? embedding_name() : head_name()];
    if (stage.is_last()) d.decoder = stage.losses_backward(d.decoder, kept, dhead, put);  // (t, D)
    return stage.backward(std::move(d), kept, sums[embedding_name()], put);
  }
  Value output_gradient(Index m, const Value& losses, const LossGradient& loss_gradient) const {
    const Index first_row = batch.target.piece(m, micro_batches).first_sequence * batch.target.length;
    return {Owned(), of(loss_gradient(losses.decoder.local(), first_row))};
  }

  /// A message has the residual stream of the encoder, or what the encoder returned. Behind the decoder's
  /// first device it also has the residual stream of the decoder.
  std::vector<Shape> shapes(const Message& m) const {
    auto shape = [&](const Tokens& all) {
      return Shape{all.piece(m.micro_batch, micro_batches).rows(), stage.m.model_dim};
    };
    if (!stage.split.is_within_decoder(std::max(m.stage, m.from_stage()))) return {shape(batch.source)};
    return {shape(batch.source), shape(batch.target)};  // (t_e, D), (t, D)
  }
  Tensor sent(Value& x, std::size_t i) const { return std::move(i == 0 ? x.encoder : x.decoder).local(); }
  Value value(const Message&, std::vector<Tensor> t) const {
    return {of(std::move(t[0])), t.size() > 1 ? of(std::move(t[1])) : Owned()};
  }
  Owned of(Tensor t) const { return Owned::mine(stage.engine.group(), std::move(t)); }
};

class T5Layers : public StagedEngine<T5Part, LanguageModel> {
 public:
  /// `split`: see T5Split.
  T5Layers(Communicator& group, const T5Model& model, const std::string& split, Index micro_batches)
      : StagedEngine(group), stage_{*this, model, T5Split(model, num_devices(), split), device_id()} {
    micro_batches_ = micro_batches;
    set_schedule(micro_batches, one_forward_one_backward(num_devices(), micro_batches));
  }

  /// ## What this device owns
  /// Its blocks, whole. Of other parameters it knows the shape and the owner. The embedding is read by the
  /// first block of each stack, and by the head where that is the same table. The bias of a stack is read by
  /// all of its blocks. The first device that reads such a table owns it, and the others have copies.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(stage_.m, stage_.w, [&](const std::string& name, Owned& p) {
      p = load_owned(c, name, stage_.split.owner_of(name));
    });
    for (const auto& [table, owner, reader] : stage_.split.copies())
      if (reader == device_id()) of_table(stage_.copies, table) = load_owned(c, table_name(table), reader);
  }

  /// ## The step
  /// A table's owner updates it, and the copies become the new one.
  Trainables trainable() override { return trainables(stage_.m, stage_.w); }
  void after_step() override {
    for (const auto& [table, owner, reader] : stage_.split.copies()) {
      if (owner == device_id()) send(reader, of_table(stage_.w, table).local());
      if (reader == device_id()) assign(Rows(of_table(stage_.copies, table).parameter()), receive(owner));
    }
  }

  /// Tokens are few numbers, and several devices need some of them. So every device is given all.
  Placement input_layout() const override { return Placement::replicated(); }

 private:
  static Owned& of_table(T5OwnedWeights& w, Table table) {
    if (table == Table::embedding) return w.embedding;
    return w.stack(table == Table::encoder_bias ? Side::encoder : Side::decoder).position_bias;
  }
  Worker begin(Tensor& input, Index micro_batches) override {
    return {group(), {stage_, read_with_source(input, stage_.m.vocabulary), micro_batches}};
  }
  Placed output_of(Worker& worker) override {
    Tensor mine = stage_.is_last() ? worker.take_output().decoder.local() : Tensor();
    return Owned(group(), std::move(mine), {worker.part.batch.target.rows(), 1},
                 stage_.split.last());  // (T, 1)
  }
  T5Stream<Owned> output_gradient_of(T5Part& part, Tensor dlosses) override {
    return {{}, part.of(std::move(dlosses))};
  }
  /// A table's owner adds the gradients of its copies.
  Gradients gradients_of(T5Part& part) override {
    OwnedSums& sums = part.sums;
    for (const auto& [table, owner, reader] : stage_.split.copies()) {
      Owned& sum = sums[table_name(table)];
      if (reader == device_id()) send(owner, sum.local());
      if (owner == device_id()) accumulate(sum, Owned::mine(group(), receive(reader)));
    }
    return decoders::gradients_of(stage_.m, stage_.w, sums);
  }

  T5Stage<Owned, Owned, Owned> stage_;
};

}  // namespace shard::decoders
