#pragma once

#include "engine/layers/tokens/language_model.hpp"
#include "engine/workloads/decoder/model.hpp"
#include "engine/workloads/decoder/text_network.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard {

/// A decoder (model.hpp) that learns to predict the next character of a text. Its input is (B, 2 S):
/// each row has the S ids of a sequence, then its S labels. Its output is each token's loss, (B · S, 1).
class Decoder : public TextNetwork<DecoderModel>, public RoutedNetwork {
 public:
  /// Sequences have `length` tokens. In training, each may end with its first sentence (characters.hpp).
  Decoder(const DecoderModel& model, Index length, const std::string& data = Characters::default_path(),
          bool ends_with_sentence = false)
      : TextNetwork(model, length, data), ends_with_sentence_(ends_with_sentence) {}

  const WorkloadKind& kind() const override;
  Index num_layers() const override { return model_.num_blocks; }
  double parameter_elements() const override;
  /// A block has two norms, and the backward pass needs the rows of each.
  double kept_elements(Index batch) const override {
    return 2.0 * batch * length_ * model_.num_blocks * model_.model_dim;
  }
  Shape input_shape(Index batch) const override { return {batch, 2 * length_}; }
  std::unique_ptr<GivenBatch> given_batch(std::unique_ptr<Checkpoint> file, const InputHint&) const override;
  std::string why_no_sequence(const std::vector<Index>& tokens, Index more) const override;

  void open_data() override;
  std::unique_ptr<TrainingBatch> batch(Index rows, std::uint64_t seed, Index step) const override;
  Examples examples(ShardedEngine& engine, std::uint64_t seed) const override;
  bool is_mixture() const override { return model_.is_mixture(); }
  /// Notes nothing of an engine that notes no choices.
  void note(const ShardedEngine& engine, Journal& journal) const override;

  /// ChosenExperts. A collective.
  std::shared_ptr<const StepData> choices(const ShardedEngine& engine) const override;

 private:
  std::shared_ptr<TextNetwork> of(const DecoderModel& model, Index longest) const override {
    return std::make_shared<Decoder>(model, std::min(length_, longest), data_);
  }

  bool ends_with_sentence_;
};

/// The default number of experts. Few numbers of devices divide 7, so that cuts are uneven.
inline constexpr Index usual_experts = 7;
/// The kind of these networks, with this default number of experts; 0 for a plain feed-forward.
const WorkloadKind& decoder(Index experts = 0);

/// Casts to a decoder. \throws Error internal for another workload
const Decoder& as_decoder(const Workload& workload);

/// The choices of a step. They do not depend on how the network is divided.
struct ChosenExperts : StepData {
  Index experts, top_k;
  std::vector<std::vector<Index>> of_block{};  ///< by block, (B · S · k)

  ChosenExperts(Index num_experts, Index of_token) : experts(num_experts), top_k(of_token) {}
  int devices() const override { return 1; }
  bool equals(const StepData& other) const override {
    return of_block == dynamic_cast<const ChosenExperts&>(other).of_block;
  }
  /// The number of choices of each expert in each block, (blocks · E); empty if the engine has noted none.
  std::vector<Index> counts() const;
};

/// Gathers the choices that an engine's devices noted in its last step, each on one device, of sequences of
/// this length. A collective; every device gets all of them.
ChosenExperts gathered_choices(const LanguageModel& engine, const DecoderModel& model, Index length);

}  // namespace shard
