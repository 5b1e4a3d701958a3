#pragma once

/// Where the parameters of a decoder on five axes lie, over which axes a gradient is a sum, and which tokens
/// of a batch a device has. (Part of five.hpp.)

#include "five_batch.hpp"
#include "five_network.hpp"

namespace shard::meshes {

class FiveEngine : public MeshEngine<FiveAxes, LanguageModel> {
 public:
  FiveEngine(Communicator& group, const MeshShape& shape, const DecoderModel& model,
             decoders::CutSequences cut)
      : MeshEngine(group, shape), m_(model), cut_(cut) {
    mesh().axes({data::name, context::name, experts::name});  // the copies of a weight
    mesh().axes({data::name, context::name});                 // the copies of an expert
    mesh().axes({pipeline::name, experts::name});             // the places where an expert may lie
  }

  /// My sequences, whole. Every stage has them: the first one keeps their ids, and the last one their labels.
  Placement input_layout() const override { return placement<S<0>, R, R, S<0>, R>(); }

 protected:
  /// My tokens of a batch. A sequence that goes on token by token fills one device along context after the
  /// other.
  FiveBatch batch_of(Tensor input, Index micro_batches) {
    constexpr Index at_a_time = 32;
    forget_choices();
    const auto rows = from_outside<S<0>, R, R, S<0>, R>(std::move(input));  // (b, 2 S)
    const Index first_position = next_position();
    Tokens tokens = read(rows.local(), m_.vocabulary);
    const int stage = mesh().place(pipeline::name);
    if (stage > 0) tokens.ids = {};
    if (stage + 1 < mesh().size(pipeline::name)) tokens.labels = {};
    tokens.first_sequence = rows.ranges()[0].begin;
    decoders::SequenceCut cut =
        cut_(tokens.sequences, tokens.length, mesh().size(context::name)).turned(first_position / at_a_time);
    cut.first_position = first_position;
    FiveBatch batch(mesh(), std::move(tokens), rows.global_shape()[0], std::move(cut),
                    first_position > 0 ? std::move(keys_) : decoders::KeysOnRing(), micro_batches);
    keys_ = batch.keys();
    return batch;
  }

  /// Whether the last stage has a copy of the first one's table.
  bool has_copy() { return m_.is_tied && mesh().size(pipeline::name) > 1; }

  /// \name A part of a parameter, where it lies
  /// @{
  template <class T>
  void load_part(Weight<T>& p, const Checkpoint& c, const FiveParameter& of) {
    p = load_at<R, O, R, R, T>(place_of(of), c, of.name);
  }
  template <class T>
  void load_part(ExpertWeight<T>& p, const Checkpoint& c, const FiveParameter& of) {
    const int along_expert = mesh().size(experts::name);
    const int owner = place_of(of) * along_expert + part_with(m_.experts, along_expert, of.expert);
    p = load_at<R, O, R, O, T>(owner, c, of.name);
  }
  int place_of(const FiveParameter& of) {
    return part_with(m_.num_blocks, mesh().size(pipeline::name), of.block);
  }
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

  DecoderModel m_;

 private:
  decoders::CutSequences cut_;
  decoders::KeysOnRing keys_;  // of the last forward pass
};

}  // namespace shard::meshes
