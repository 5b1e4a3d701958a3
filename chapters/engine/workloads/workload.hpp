#pragma once

/// What is trained. A `Workload` is one network with its data; a `WorkloadKind` makes them: from options,
/// from a checkpoint, or small ones for tests. How a network is divided is not said here: variants do that.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint.hpp"
#include "engine/foreign_model.hpp"
#include "engine/host_tensor.hpp"
#include "engine/layers/tokens.hpp"
#include "engine/options.hpp"
#include "engine/proof/costs.hpp"
#include "engine/proof/diagnosis.hpp"
#include "engine/workloads/given_batch.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

class ShardedEngine;
class Workload;
class WorkloadKind;

/// Output ("output"), dL/dx ("input_grad") and each parameter's gradient, by name.
using Solution = std::map<std::string, HostTensor>;

/// A problem whose every sum is exact in float32, so that any cut and any order of summation must give the
/// same bits.
struct ExactProblem {
  std::shared_ptr<const Workload> workload;  ///< the network for which it is exact
  HostTensor input;
  HostTensor output_grad;  ///< like the output
  std::map<std::string, HostTensor> weights;
};

/// A network that another library has written, as one of ours, and where its parameters lie.
struct ForeignNetwork {
  std::shared_ptr<Workload> network;
  ForeignNames names;
};

/// The batch of one training step, and its loss: a mean over the global batch.
class TrainingBatch {
 public:
  virtual ~TrainingBatch() = default;
  /// These rows of the input.
  virtual Tensor input(Range rows) const = 0;
  /// dL/dout of rows from `first_row` on; also adds up their part of the loss. Fits LossGradient.
  virtual Tensor loss_gradient(const Tensor& output, Index first_row) = 0;
  /// The loss over all rows seen on any device, each row once. A collective; the value is device 0's.
  virtual double loss(Communicator& group) const = 0;
};

/// A workload's notes about each step, beside the loss.
class Journal {
 public:
  virtual ~Journal() = default;
  /// After a step of this engine.
  virtual void add(const ShardedEngine& engine) = 0;
  /// For each step, the choices that rounding can change. After such a change, two runs train different
  /// networks.
  virtual std::vector<std::vector<Index>> decisions() const = 0;
  /// A few lines for people.
  virtual std::string describe() const = 0;
};

/// One network: its parameters, its data, and problems that prove it.
class Workload {
 public:
  virtual ~Workload() = default;

  virtual const WorkloadKind& kind() const = 0;
  virtual Index num_layers() const = 0;
  /// "2 layers 64 -> 128".
  virtual std::string describe() const = 0;
  virtual std::vector<Parameter> parameters() const = 0;
  /// Elements of all parameters, of networks of any size: no number of 64 bits might hold them.
  virtual double parameter_elements() const = 0;
  /// What a backward pass needs of a forward pass of so many rows, at the least: elements on all devices.
  virtual double kept_elements(Index batch) const { return num_elements(input_shape(batch)); }
  virtual Shape input_shape(Index batch) const = 0;
  virtual Shape output_shape(Index batch) const = 0;
  /// Where an input of this width would fit if the parameters were stored in another way: a sentence that
  /// asks so. Else nothing.
  virtual std::string input_hint(Index width) const = 0;

  /// A batch of this network that a file holds, for `gradients`. By default it has `input` and `output_grad`.
  /// `hint`: see input_hint; of parameters from `source`. \throws Error file when it does not fit
  virtual std::unique_ptr<GivenBatch> given_batch(std::unique_ptr<Checkpoint> file,
                                                  const InputHint& hint) const;

  /// \name Tokens: of language models
  /// @{
  /// Why these tokens with so many more are no sequence of the network's: "expected tokens from 0 to 9, given
  /// 12". Nothing where they are one.
  virtual std::string why_no_sequence(const std::vector<Index>& tokens, Index more) const;
  /// What the network goes on with where a user gives these tokens.
  virtual Prompt prompt_of(const std::vector<Index>& tokens) const { return {tokens, std::nullopt}; }
  /// A text as tokens, and tokens as a text. \throws Error usage when the network has no such text
  virtual std::vector<Index> tokens_of(const std::string& text) const;
  virtual std::string text_of(const std::vector<Index>& tokens) const;
  /// @}

  /// \name Training
  /// @{
  /// Reads what it is trained on. \throws Error file for data that cannot be read; usage when this network
  /// cannot be trained
  virtual void open_data() = 0;
  /// The batch of a step, counted from 1. What is in a row depends on seed, step and row alone.
  virtual std::unique_ptr<TrainingBatch> batch(Index rows, std::uint64_t seed, Index step) const = 0;
  /// What the network makes of some examples, drawn. A collective; device 0's text counts.
  virtual std::string examples(ShardedEngine& engine, std::uint64_t seed) const = 0;
  /// One line above the examples.
  virtual std::string examples_title() const = 0;
  /// The engine that divides nothing, whose results and losses those of every variant must equal: by default
  /// that of a registered variant (Variant::is_reference), null if there is none. It sends nothing, so a
  /// device may make it, and run it, by itself.
  virtual std::unique_ptr<ShardedEngine> unsharded(Communicator& group) const;
  /// Nothing where there is nothing to note.
  virtual std::unique_ptr<Journal> journal() const { return nullptr; }
  /// @}

  /// \name Proof
  /// @{
  /// Uses the data if they have been opened and fit the network.
  virtual ExactProblem exact_problem(Index batch, std::uint64_t seed) const = 0;
  /// What every engine must return: the unsharded one's results, or those of the definitions, in which no engine
  /// has a part. \throws Error internal when a product would not be exact in float32, or there is no such engine
  virtual Solution solve(const ExactProblem& problem, Communicator& group) const;
  /// What may be computed wrongly, and what comes out then.
  virtual std::vector<Cause> mistakes() const { return {}; }
  virtual Solution solve_with(Cause /*mistake*/, const ExactProblem& problem, Communicator& group) const {
    return solve(problem, group);
  }
  /// Whether exact problems stay exact only as long as this parameter stays as it is.
  virtual bool must_stay(const std::string& /*parameter*/) const { return false; }
  /// Whether exact problems stay exact while integer optimizers step.
  virtual bool stays_exact() const;
  /// Weights' gradients in exact problems are multiples of this.
  virtual float gradient_unit() const { return 1; }
  /// An input of real numbers, or whatever the network reads, for tests: uniform in ±1 by default.
  virtual HostTensor random_input(Index batch, std::uint64_t seed) const;
  /// What the engine's last step chose, which closed forms need beside the setting; null if it chose nothing.
  virtual std::shared_ptr<const StepData> step_data(const ShardedEngine&) const { return nullptr; }
  /// The same of a problem whose rows are divided over so many devices, from the definitions.
  virtual std::shared_ptr<const StepData> step_data(const ExactProblem&, int /*devices*/) const {
    return nullptr;
  }
  /// @}
};

/// Results of the problem, by its workload. `group`: that of the engines that are held against them, on which the
/// unsharded one is made. This device alone may call it.
Solution solve(const ExactProblem& problem, Communicator& group);
/// The problem in which these rows of the batch alone count: the output gradients of others are 0.
ExactProblem of_rows(ExactProblem problem, const std::vector<Range>& counted);
/// What each of so many devices adds to the results where the rows of the batch are divided: the solutions of
/// the problem with the output gradients of other devices' rows 0. (A loss that depends on the routing of a
/// whole batch is in each of them.)
std::vector<Solution> addends_by_rows(const ExactProblem& problem, int devices, Communicator& group);
/// The problem's weights after one step of the integer optimizer with these gradients.
void integer_step(ExactProblem& problem, const Solution& gradients);
/// The same of the integer optimizer with momentum, which has these momenta.
void integer_momentum_step(ExactProblem& problem, const Solution& gradients,
                           std::map<std::string, std::vector<float>>& momenta);
/// The problem with every weight halved that need not stay as it is: exact again.
ExactProblem with_halved_weights(ExactProblem problem);

/// A network and the rows of its batch.
struct TestCase {
  std::shared_ptr<const Workload> workload;
  Index batch;
};

struct TrainingDefaults {
  Index batch = 64;
  Index steps = 200;
};

/// Networks of one kind: "mlp".
class WorkloadKind {
 public:
  using Accepts = std::function<bool(const Workload&)>;

  virtual ~WorkloadKind() = default;
  virtual std::string name() const = 0;
  /// What a file of parameters is to hold, for --help.
  virtual std::string parameters_help() const = 0;

  /// What `train` does where nobody says.
  virtual TrainingDefaults training_defaults() const { return {}; }
  /// Whether these are language models, which can `generate`, and read tokens.
  virtual bool has_tokens() const { return false; }
  /// Whether they are encoder-decoders: of each sequence, an encoder reads a source first.
  virtual bool reads_sources() const { return false; }

  /// \name Options: of `train` alone, and of every command
  /// @{
  virtual std::vector<OptionText> training_options() const = 0;
  virtual std::vector<OptionText> options() const { return {}; }
  /// @}

  /// \throws Error usage
  virtual std::shared_ptr<Workload> make(const Options& options) const = 0;
  /// Changes the options to those of the next deeper network; false if they say themselves how deep it is.
  virtual bool deepen(Options& options, const Options& given) const = 0;
  /// The network whose parameters these are. \throws Error file naming the parameter that is missing, unknown
  /// or of the wrong shape
  virtual std::shared_ptr<Workload> read(const Checkpoint& checkpoint, const Options& options) const = 0;
  /// Whether a whole network of another library's can be one of these.
  virtual bool has_foreign_networks() const { return false; }
  /// A whole network of another library's, with the names that it has there. \throws Error file when it
  /// computes something else; internal if this kind has none
  virtual ForeignNetwork network_of(const ForeignModel& model) const;
  /// The network that hyper-parameters of another library's describe, to be trained as the options say.
  /// Parameters need not be there. \throws Error file when it is none of this kind; usage
  virtual std::shared_ptr<Workload> described_by(const ForeignModel& model, const Options& options) const;
  /// The names of the options that it reads.
  virtual std::vector<std::string> options_beside_config() const { return {}; }
  /// Where a block of another library's network, such as "encoder.3", has the parameters of such a network.
  /// By default none has. \throws Error file when it has no such block, or one that computes something else;
  /// usage
  virtual ForeignNames block_of(const ForeignModel& model, const std::string& block) const;
  /// A network of these sizes, for benchmarks. A row of a language model has 128 tokens, or
  /// `model_dim` where these are fewer.
  virtual std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const = 0;

  /// \name Networks to test a variant with, of those that it accepts
  /// @{
  /// Shapes that no cut divides evenly, with more devices than rows or columns among them; several depths.
  virtual std::vector<TestCase> cases(const Accepts& accepts) const = 0;
  /// A case of eleven rows whose results do not depend on which rows go through the network together.
  virtual TestCase streamed_case(const Accepts& accepts) const = 0;
  /// Problems in which every number that `devices` devices send matters: for tests that plant mistakes.
  virtual std::vector<ExactProblem> live_problems(int devices, const Accepts& accepts) const = 0;
  /// @}
};

/// Makes an engine that divides nothing.
using MakeUnsharded = std::function<std::unique_ptr<ShardedEngine>(Communicator& group, const Workload&)>;
/// Says how Workload::unsharded makes those of networks whose kind has this one's class. The first call counts.
void register_unsharded(const WorkloadKind& kind, MakeUnsharded make);

}  // namespace shard
