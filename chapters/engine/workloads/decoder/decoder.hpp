#pragma once

#include "engine/workloads/data/characters.hpp"
#include "engine/workloads/decoder/model.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// A decoder (model.hpp) that learns to predict the next character of a text. Its input is (B, 2 S):
/// each row has the S ids of a sequence, then its S labels. Its output is each token's loss, (B · S, 1).
class Decoder : public Workload {
 public:
  /// Sequences have `length` tokens. In training, each may end with its first sentence (characters.hpp).
  Decoder(const DecoderModel& model, Index length, const std::string& data = Characters::default_path(),
          bool ends_with_sentence = false)
      : model_(model), length_(length), data_(data), ends_with_sentence_(ends_with_sentence) {}

  const DecoderModel& model() const { return model_; }
  Index length() const { return length_; }

  const WorkloadKind& kind() const override;
  Index num_layers() const override { return model_.num_blocks; }
  std::string describe() const override { return model_.describe(); }
  std::vector<Parameter> parameters() const override { return model_.parameters(); }
  double parameter_elements() const override;
  /// A block has two norms, and the backward pass needs the rows of each.
  double kept_elements(Index batch) const override {
    return 2.0 * batch * length_ * model_.num_blocks * model_.model_dim;
  }
  Shape input_shape(Index batch) const override { return {batch, 2 * length_}; }
  Shape output_shape(Index batch) const override { return {batch * length_, 1}; }
  std::string input_hint(Index) const override { return ""; }

  std::unique_ptr<GivenBatch> given_batch(std::unique_ptr<Checkpoint> file, const InputHint&) const override;
  std::string why_no_sequence(const std::vector<Index>& tokens, Index more) const override;
  std::vector<Index> tokens_of(const std::string& text) const override;
  std::string text_of(const std::vector<Index>& tokens) const override;

  void open_data() override;
  std::unique_ptr<TrainingBatch> batch(Index rows, std::uint64_t seed, Index step) const override;
  std::string examples(ShardedEngine& engine, std::uint64_t seed) const override;
  std::string examples_title() const override { return "a text, and how the network goes on with it"; }
  std::unique_ptr<Journal> journal() const override;

  /// The network on the grid (arithmetic.hpp). Weights are integers −2..2. Output gradients are multiples of
  /// 16 up to 64, so that few gradients round to 0. About one label in ten is missing.
  ExactProblem exact_problem(Index batch, std::uint64_t seed) const override;
  /// Weights stay small, and each norm rounds to the grid again.
  bool stays_exact() const override { return true; }
  float gradient_unit() const override;
  HostTensor random_input(Index batch, std::uint64_t seed) const override;
  /// For a mixture: ChosenExperts. A collective.
  std::shared_ptr<const StepData> step_data(const ShardedEngine& engine) const override;

 private:
  DecoderModel model_;
  Index length_;
  std::string data_;
  bool ends_with_sentence_;
  std::shared_ptr<const Characters> text_;
};

/// The default number of experts. Few numbers of devices divide 7, so that cuts are uneven.
inline constexpr Index usual_experts = 7;
/// The kind of these networks, with this default number of experts; 0 for a plain feed-forward.
const WorkloadKind& decoder(Index experts = 0);

/// Casts to a decoder. \throws Error internal for another workload
const Decoder& as_decoder(const Workload& workload);

}  // namespace shard
