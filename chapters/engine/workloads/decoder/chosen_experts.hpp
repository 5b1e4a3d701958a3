#pragma once

/// The experts that the tokens of a step chose, for tests and for people.

#include "engine/layers/tokens/language_model.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard {

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

/// The experts that tokens chose, by step. An engine that notes no choices has no entries.
class ExpertJournal : public Journal {
 public:
  explicit ExpertJournal(const Decoder& network) : network_(network) {}

  void add(const ShardedEngine& engine) override;
  std::vector<std::vector<Index>> decisions() const override { return decisions_; }
  std::string describe() const override { return decisions_.empty() ? "" : balance_.describe(); }

 private:
  const Decoder& network_;
  ExpertBalance balance_;
  std::vector<std::vector<Index>> decisions_;
};

}  // namespace shard
