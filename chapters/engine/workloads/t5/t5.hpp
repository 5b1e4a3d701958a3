#pragma once

#include "engine/workloads/data/characters.hpp"
#include "engine/workloads/t5/model.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// An encoder-decoder (model.hpp) that reads a piece of a text and learns to predict the next piece. Its
/// input is (B, 1 + n + 2 S): see SourceAndTarget. Its output is the loss of each token of the targets, (B ·
/// S, 1). A target begins with the model's start token or, without one, with the last token of its source.
class T5 : public Workload {
 public:
  /// Sources have `source_length` tokens, and targets `length`.
  T5(const T5Model& model, Index source_length, Index length,
     const std::string& data = Characters::default_path())
      : model_(model), source_length_(source_length), length_(length), data_(data) {}

  const T5Model& model() const { return model_; }
  Index source_length() const { return source_length_; }
  Index length() const { return length_; }

  const WorkloadKind& kind() const override;
  Index num_layers() const override { return model_.encoder_blocks + model_.decoder_blocks; }
  std::string describe() const override { return model_.describe(); }
  std::vector<Parameter> parameters() const override { return model_.parameters(); }
  double parameter_elements() const override;
  /// A block has at least two norms, and the backward pass needs the rows of each.
  double kept_elements(Index batch) const override {
    const Index rows = model_.encoder_blocks * source_length_ + model_.decoder_blocks * length_;
    return 2.0 * batch * rows * model_.model_dim;
  }
  Shape input_shape(Index batch) const override { return {batch, 1 + source_length_ + 2 * length_}; }
  Shape output_shape(Index batch) const override { return {batch * length_, 1}; }
  std::string input_hint(Index) const override { return ""; }
  std::unique_ptr<GivenBatch> given_batch(std::unique_ptr<Checkpoint> file, const InputHint&) const override;
  std::string why_no_sequence(const std::vector<Index>& tokens, Index more) const override;
  /// The tokens are the source.
  Prompt prompt_of(const std::vector<Index>& tokens) const override;
  std::vector<Index> tokens_of(const std::string& text) const override;
  std::string text_of(const std::vector<Index>& tokens) const override;

  void open_data() override;
  std::unique_ptr<TrainingBatch> batch(Index rows, std::uint64_t seed, Index step) const override;
  std::string examples(ShardedEngine& engine, std::uint64_t seed) const override;
  std::string examples_title() const override {
    return "a source, its target, and what the network says for each character of the target";
  }

  /// As a decoder's.
  ExactProblem exact_problem(Index batch, std::uint64_t seed) const override;
  /// As a decoder's.
  bool stays_exact() const override { return true; }
  float gradient_unit() const override;
  HostTensor random_input(Index batch, std::uint64_t seed) const override;

 private:
  T5Model model_;
  Index source_length_, length_;
  std::string data_;
  std::shared_ptr<const Characters> text_;
};

/// The kind of these networks.
const WorkloadKind& t5();

/// Casts to a T5. \throws Error internal for another workload
const T5& as_t5(const Workload& workload);

}  // namespace shard
