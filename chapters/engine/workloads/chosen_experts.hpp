#pragma once

/// Which experts the tokens of a step chose, for tests and for people.

#include "engine/layers/language_model.hpp"
#include "engine/workloads/decoder.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard {

/// The choices of a step. They do not depend on what is divided.
struct ChosenExperts : StepData {
  Index experts, top_k;
  std::vector<std::vector<Index>> of_block{};  ///< of each block, (B · S · k)

  ChosenExperts(Index num_experts, Index of_token) : experts(num_experts), top_k(of_token) {}
  int devices() const override { return 1; }
  bool equals(const StepData& other) const override {
    return of_block == dynamic_cast<const ChosenExperts&>(other).of_block;
  }
  /// How many choices in each block are of each expert, (blocks · E); nothing if the engine has noted none.
  std::vector<Index> counts() const;
};

/// The choices that the devices of an engine noted in its last step, each on one device, of sequences of this
/// length. A collective; every device has all.
ChosenExperts gathered_choices(const LanguageModel& engine, const DecoderModel& model, Index length);

/// Which experts tokens chose, in each step. An engine that does not note it has no entries.
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
