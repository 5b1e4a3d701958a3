#pragma once

#include "engine/workloads/data/digits.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

/// A stack of matrices with ReLUs between them (model.hpp).
class Mlp : public DenoisingWorkload {
 public:
  explicit Mlp(const Model& model, const std::string& data = Digits::default_path())
      : DenoisingWorkload(data), model_(model) {}

  const Model& model() const { return model_; }

  const WorkloadKind& kind() const override;
  Index num_layers() const override { return model_.num_layers; }
  std::string describe() const override;
  /// Uniform in ±sqrt(6 / rows) for a layer behind a ReLU (He et al. 2015, eq. 10), and in ±sqrt(3 / rows)
  /// for other layers, which keeps the variance.
  std::vector<Parameter> parameters() const override;
  double parameter_elements() const override { return stack_elements(model_); }
  Shape input_shape(Index batch) const override { return {batch, model_.model_dim}; }
  Shape output_shape(Index batch) const override { return {batch, model_.width(model_.num_layers)}; }
  std::string input_hint(Index width) const override;
  std::unique_ptr<ShardedEngine> unsharded(Communicator& alone) const override;

  /// Small integers, with Σ |a| |b| ≤ 2²⁴ for every product, forward and backward. The input is 0..16: digits
  /// if they have this width. Of several rows, the last is all zeros, where every ReLU has its kink. Weights
  /// are dense −2..2 for two layers, sparse ±1 for deeper stacks; output gradients are −2..2.
  ExactProblem exact_problem(Index batch, std::uint64_t seed) const override;
  Solution solve(const ExactProblem& problem, Communicator& group) const override {
    return solve_with(Cause::unknown, problem, group);
  }
  std::vector<Cause> mistakes() const override;
  Solution solve_with(Cause mistake, const ExactProblem& problem, Communicator&) const override;

 private:
  Model model_;
};

/// The kind of these networks.
const WorkloadKind& mlp();

/// The arguments of an mlp's closed form. \throws Error internal for another workload
struct MlpSetting : Setting {
  Model model;

  MlpSetting(const Setting& setting);  // implicit: a form gets the general setting
};

/// For variants that cut blocks of two layers. \throws Error usage for an odd number of layers
void require_blocks(const Workload& network);

/// The exact problem of this model.
ExactProblem make_exact_problem(const Model& model, Index batch, std::uint64_t seed);
/// The initial values of one stack, with a prefix before each name.
std::vector<Parameter> stack_parameters(const Model& model, const std::string& before_name);
}  // namespace shard
