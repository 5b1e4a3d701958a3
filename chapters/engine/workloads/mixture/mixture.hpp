#pragma once

#include "engine/workloads/data/digits.hpp"
#include "engine/workloads/mixture/model.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard {

/// A mixture of experts (model.hpp) with a routing rule. Its engines also implement RoutesTokens.
class Mixture : public DenoisingWorkload, public RoutedNetwork {
 public:
  /// \throws Error usage when a token needs more experts than there are
  Mixture(const MixtureModel& model, const RoutingRule& rule,
          const std::string& data = Digits::default_path());

  const MixtureModel& model() const { return model_; }
  const RoutingRule& rule() const { return rule_; }

  const WorkloadKind& kind() const override;
  Index num_layers() const override { return model_.num_layers; }
  std::string describe() const override;
  /// The experts' parameters as in Mlp; the router's as those of a layer without a ReLU before it.
  std::vector<Parameter> parameters() const override;
  double parameter_elements() const override;
  Shape input_shape(Index batch) const override { return {batch, model_.model_dim}; }
  Shape output_shape(Index batch) const override { return {batch, model_.width(model_.num_layers)}; }
  std::string input_hint(Index width) const override;
  void note(const ShardedEngine& engine, Journal& journal) const override;

  /// Sums have integers times powers of two as addends, and gates are such numbers: logits are multiples of
  /// 128, and exp(−128) is 0 in float32, so the experts with the row's largest logit share its probability
  /// equally. Their number is 1, 2, 4, ... by construction. The weight of the balancing loss, if not 0, becomes
  /// one for which its derivative is an integer; skew becomes 0. \throws Error internal when no such problem is
  /// found
  ExactProblem exact_problem(Index batch, std::uint64_t seed) const override;
  Solution solve(const ExactProblem& problem, Communicator& group) const override {
    return solve_with(Cause::unknown, problem, group);
  }
  std::vector<Cause> mistakes() const override;
  Solution solve_with(Cause mistake, const ExactProblem& problem, Communicator& group) const override;
  /// True for the router: with other weights, gates would not be exact.
  bool must_stay(const std::string& parameter) const override { return parameter == router_name(); }
  std::shared_ptr<const StepData> choices(const ShardedEngine& engine) const override;
  std::shared_ptr<const StepData> choices(const ExactProblem& problem, int devices) const override;

 private:
  MixtureModel model_;
  RoutingRule rule_;
};

/// Mixtures with one expert for each token (`top_k` 1), or with `--top-k` experts (default `top_k`).
const WorkloadKind& mixture(Index top_k);

/// Casts to a mixture. \throws Error internal for another workload
const Mixture& as_mixture(const Workload& workload);

/// The choices of a step, for closed forms.
struct RoutedStep : StepData {
  RoutedCounts counts;

  explicit RoutedStep(RoutedCounts of_step) : counts(std::move(of_step)) {}

  int devices() const override { return counts.devices; }
  bool equals(const StepData& other) const override {
    return counts == dynamic_cast<const RoutedStep&>(other).counts;
  }
  std::string difference_from(const StepData& expected) const override;
};

/// The arguments of a mixture's closed form. \throws Error internal for another workload
struct MixtureSetting : Setting {
  MixtureModel model;
  RoutingRule rule;
  RoutedCounts routed;  ///< the choices of this batch

  MixtureSetting(const Setting& setting);  // implicit: a form gets the general setting
};

}  // namespace shard
