#pragma once

/// What is trained. A `Workload` is one network with its data. A `WorkloadKind` makes workloads: from
/// options, from a checkpoint, or small ones for tests. Only variants define how a network is divided.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/basics/options.hpp"
#include "engine/weights/foreign_model.hpp"
#include "engine/workloads/given_batch.hpp"
#include "engine/workloads/initial_values.hpp"
#include "engine/workloads/network/exact_network.hpp"
#include "engine/workloads/network/routed_network.hpp"
#include "engine/workloads/network/token_network.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard {

class ShardedEngine;
class Workload;
class WorkloadKind;

/// A network of another library as one of our networks, with the stored names of its parameters.
struct ForeignNetwork {
  std::shared_ptr<Workload> network;
  ForeignNames names;
};

/// The batch of one training step, and its loss: a mean over the global batch.
class TrainingBatch {
 public:
  virtual ~TrainingBatch() = default;
  /// These rows of the input of the batch.
  virtual Tensor input(Range rows) const = 0;
  /// dL/dout of `output`, the rows from `first_row` on; also adds up their loss. Fits LossGradient.
  virtual Tensor loss_gradient(const Tensor& output, Index first_row) = 0;
  /// The loss over all rows seen on any device, each row once. A collective; the value is device 0's.
  virtual double loss(Communicator& group) const = 0;
};

/// Examples of what a network makes of its data.
struct Examples {
  std::string title;  ///< what they show, for the line above them
  std::string drawing;
};

/// One network with its data. A plain network, as workloads/mlp is one, defines the functions that are pure, and
/// `unsharded` or a variant that is a reference. A language model is also a TokenNetwork, and a mixture of experts a
/// RoutedNetwork.
class Workload : public ExactNetwork {
 public:
  virtual const WorkloadKind& kind() const = 0;
  virtual Index num_layers() const = 0;
  /// "2 layers 64 -> 128".
  virtual std::string describe() const = 0;
  virtual std::vector<Parameter> parameters() const = 0;
  /// The number of elements of all parameters. It may exceed 64 bits.
  virtual double parameter_elements() const = 0;
  virtual Shape input_shape(Index batch) const = 0;
  virtual Shape output_shape(Index batch) const = 0;

  /// \name Training
  /// @{
  /// Reads the training data. \throws Error file for data that cannot be read; usage when this network cannot
  /// be trained
  virtual void open_data() = 0;
  /// The batch of a step, counted from 1. A row's content depends on seed, step and row alone.
  virtual std::unique_ptr<TrainingBatch> batch(Index rows, std::uint64_t seed, Index step) const = 0;
  /// What an engine makes of some examples. A collective; the value is device 0's.
  virtual Examples examples(ShardedEngine& engine, std::uint64_t seed) const = 0;
  /// @}

  /// \name What suits most networks
  /// @{
  /// "batch 64", and how long its rows are where the network does not say it: "batch 8 of length 16".
  virtual std::string describe_batch(Index batch) const { return "batch " + std::to_string(batch); }
  /// The least elements that a forward pass of `batch` rows keeps for its backward pass, on all devices.
  virtual double kept_elements(Index batch) const { return num_elements(input_shape(batch)); }
  /// A question for an error message: would an input of this width fit if the parameters were stored in
  /// another way? Empty otherwise.
  virtual std::string input_hint(Index /*width*/) const { return ""; }
  /// A batch from a file, for `gradients`. By default it has `input` and `output_grad`. `hint`: see
  /// input_hint. \throws Error file when it does not fit
  virtual std::unique_ptr<GivenBatch> given_batch(std::unique_ptr<Checkpoint> file,
                                                  const InputHint& hint) const;
  /// Says which loss a network has that has learned nothing but what is usual in the data: one that is good is below.
  /// Nothing where nobody knows.
  virtual std::string yardstick() const { return ""; }
  /// The engine that divides nothing. Results and losses of every variant must equal its own. By default it is
  /// that of a registered variant (Variant::is_reference), or null if there is none. It sends nothing, so one
  /// device may make and run it alone.
  virtual std::unique_ptr<ShardedEngine> unsharded(Communicator& group) const;
  /// A random input for tests: by default, uniform in ±1.
  virtual HostTensor random_input(Index batch, std::uint64_t seed) const;
  /// The results of the unsharded engine.
  Solution solve(const ExactProblem& problem, Communicator& group) const override;
  /// @}

  /// This network, if it is a language model. \throws Error usage
  const TokenNetwork& tokens() const;
  /// This network, if its tokens choose experts, or null; and what they have chosen, or null.
  /// @{
  const RoutedNetwork* routed() const;
  std::shared_ptr<const StepData> step_data(const ShardedEngine& engine) const;
  std::shared_ptr<const StepData> step_data(const ExactProblem& problem, int devices) const;
  /// @}
};

/// The results of a problem, computed by its workload. The unsharded engine is made on `group`, the group of the
/// engines that are compared with it. One device may call this alone.
inline Solution solve(const ExactProblem& problem, Communicator& group) {
  return problem.workload->solve(problem, group);
}
/// The problem in which only these rows of the batch count: the output gradients of others are 0, and so is their
/// share of a balancing loss.
ExactProblem of_rows(ExactProblem problem, const std::vector<Range>& counted);
/// The problem with halved weights, except for those that must stay. It is exact again.
ExactProblem with_halved_weights(ExactProblem problem);

struct TrainingDefaults {
  Index batch = 64;
  Index steps = 200;
};

/// Networks of one kind: "mlp".
class WorkloadKind {
 public:
  virtual ~WorkloadKind() = default;
  virtual std::string name() const = 0;
  /// Whether its options also make networks of the kind with this name.
  virtual bool makes(const std::string& other) const { return other == name(); }
  /// The content of a file of parameters, for --help.
  virtual std::string parameters_help() const = 0;

  /// The defaults of `train`.
  virtual TrainingDefaults training_defaults() const { return {}; }
  /// Whether these are language models, which `generate` and read tokens.
  virtual bool has_tokens() const { return false; }
  /// Whether these are encoder-decoders: an encoder reads a source for each sequence.
  virtual bool reads_sources() const { return false; }

  /// \name Options: of `train` alone, and of every command
  /// @{
  virtual std::vector<OptionText> training_options() const = 0;
  virtual std::vector<OptionText> options() const { return {}; }
  /// @}

  /// \throws Error usage
  virtual std::shared_ptr<Workload> make(const Options& options) const = 0;
  /// Changes the options to those of the next deeper network. False if `given` fixes the depth.
  virtual bool deepen(Options& options, const Options& given) const = 0;
  /// The network that has these parameters. \throws Error file naming the parameter that is missing, unknown
  /// or of the wrong shape
  virtual std::shared_ptr<Workload> read(const Checkpoint& checkpoint, const Options& options) const = 0;
  /// Whether this kind can read whole networks of other libraries.
  virtual bool has_foreign_networks() const { return false; }
  /// A whole network of another library, with its stored names. \throws Error file when it computes something
  /// else; internal if this kind has none
  virtual ForeignNetwork network_of(const ForeignModel& model) const;
  /// The network of another library's hyper-parameters, to be trained as the options say. Parameters need not
  /// exist. \throws Error file when it is not of this kind; usage
  virtual std::shared_ptr<Workload> described_by(const ForeignModel& model, const Options& options) const;
  /// The names of the options that described_by reads.
  virtual std::vector<std::string> options_beside_config() const { return {}; }
  /// The stored names of a block in another library's network, such as "encoder.3", as a network of this
  /// kind. By default there is none. \throws Error file when the block does not exist or computes something
  /// else; usage
  virtual ForeignNames block_of(const ForeignModel& model, const std::string& block) const;
  /// A network of these sizes, for benchmarks. A row of a language model has 128 tokens, or `model_dim` if
  /// that is less.
  virtual std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const = 0;
};

/// Makes an engine that divides nothing.
using MakeUnsharded = std::function<std::unique_ptr<ShardedEngine>(Communicator& group, const Workload&)>;
/// Says how Workload::unsharded makes those of networks whose kind has this one's class. The first call counts.
void register_unsharded(const WorkloadKind& kind, MakeUnsharded make);

}  // namespace shard
