#pragma once

#include "engine/workloads/decoder/text_network.hpp"
#include "engine/workloads/t5/model.hpp"

namespace shard {

/// An encoder-decoder (model.hpp) that reads a piece of a text and learns to predict the next piece. Its
/// input is (B, 1 + n + 2 S): see SourceAndTarget. Its output is the loss of each token of the targets, (B ·
/// S, 1). A target begins with the model's start token or, without one, with the last token of its source.
class T5 : public TextNetwork<T5Model> {
 public:
  /// Sources have `source_length` tokens, and targets `length`.
  T5(const T5Model& model, Index source_length, Index length,
     const std::string& data = Characters::default_path())
      : TextNetwork(model, length, data), source_length_(source_length) {}

  Index source_length() const { return source_length_; }

  std::string describe_batch(Index batch) const override {
    return fmt::format("batch {} of lengths {} and {}", batch, source_length_, length_);
  }
  const WorkloadKind& kind() const override;
  Index num_layers() const override { return model_.encoder_blocks + model_.decoder_blocks; }
  double parameter_elements() const override;
  /// A block has at least two norms, and the backward pass needs the rows of each.
  double kept_elements(Index batch) const override {
    const Index rows = model_.encoder_blocks * source_length_ + model_.decoder_blocks * length_;
    return 2.0 * batch * rows * model_.model_dim;
  }
  Shape input_shape(Index batch) const override { return {batch, 1 + source_length_ + 2 * length_}; }
  std::unique_ptr<GivenBatch> given_batch(std::unique_ptr<Checkpoint> file, const InputHint&) const override;
  std::string why_no_sequence(const std::vector<Index>& tokens, Index) const override {
    return why_no_tokens(tokens, model_.vocabulary);
  }
  /// The tokens are the source.
  Prompt prompt_of(const std::vector<Index>& tokens) const override {
    return {{model_.start_token.value_or(tokens.back())}, tokens};
  }
  std::unique_ptr<TrainingBatch> batch(Index rows, std::uint64_t seed, Index step) const override;
  Examples examples(ShardedEngine& engine, std::uint64_t seed) const override;

  HostTensor random_input(Index batch, std::uint64_t seed) const override;

 private:
  std::shared_ptr<TextNetwork> of(const T5Model& model, Index longest) const override {
    return std::make_shared<T5>(model, std::min(source_length_, longest), std::min(length_, longest), data_);
  }

  Index source_length_;
};

/// The kind of these networks.
const WorkloadKind& t5();

/// Casts to a T5. \throws Error internal for another workload
const T5& as_t5(const Workload& workload);

}  // namespace shard
