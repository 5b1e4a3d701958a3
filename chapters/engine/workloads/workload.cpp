#include "engine/workloads/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <typeindex>

#include "engine/engines/sharded_engine.hpp"
#include "engine/proof/exact.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/random.hpp"

namespace shard {

namespace {

std::map<std::type_index, MakeUnsharded>& unsharded_engines() {
  static std::map<std::type_index, MakeUnsharded> all;
  return all;
}

}  // namespace

void register_unsharded(const WorkloadKind& kind, MakeUnsharded make) {
  unsharded_engines().emplace(typeid(kind), std::move(make));
}

std::unique_ptr<ShardedEngine> Workload::unsharded(Communicator& group) const {
  const WorkloadKind& mine = kind();
  const auto found = unsharded_engines().find(typeid(mine));
  return found == unsharded_engines().end() ? nullptr : found->second(group, *this);
}

Solution Workload::solve(const ExactProblem& problem, Communicator& group) const {
  const std::unique_ptr<ShardedEngine> engine = unsharded(group);
  if (!engine) refuse(Code::internal, "exact mode", "an unsharded variant", "none for a " + kind().name());
  const exact::ExactProducts asserted;
  engine->load_checkpoint(*host_checkpoint(problem.weights, "exact mode"));
  engine->want_input_grad(true);
  Solution results;
  const Gradients gradients = engine->forward_backward(
      Tensor::from_host(problem.input.shape, problem.input.values), [&](const Tensor& output, Index) {
        results["output"] = {output.shape(), output.to_host()};
        return Tensor::from_host(problem.output_grad.shape, problem.output_grad.values);
      });
  for (const auto& [name, gradient] : gradients)
    results[name] = {gradient.local().shape(), gradient.local().to_host()};
  return results;
}

HostTensor Workload::random_input(Index batch, std::uint64_t seed) const {
  HostTensor input{input_shape(batch), {}};
  const CounterRandom random(seed, "input");
  for (Index i = 0; i < num_elements(input.shape); ++i)
    input.values.push_back(2 * random.uniform(static_cast<std::uint64_t>(i)) - 1);
  return input;
}

std::unique_ptr<GivenBatch> Workload::given_batch(std::unique_ptr<Checkpoint> file,
                                                  const InputHint& hint) const {
  return input_and_output_grad(std::move(file), *this, hint);
}

const TokenNetwork& Workload::tokens() const {
  const auto* mine = dynamic_cast<const TokenNetwork*>(this);
  if (mine == nullptr) throw Error(Code::usage, "expected a language model, given a {}", kind().name());
  return *mine;
}

const RoutedNetwork* Workload::routed() const {
  const auto* mine = dynamic_cast<const RoutedNetwork*>(this);
  return mine != nullptr && mine->is_mixture() ? mine : nullptr;
}

std::shared_ptr<const StepData> Workload::step_data(const ShardedEngine& engine) const {
  const RoutedNetwork* mine = routed();
  return mine == nullptr ? nullptr : mine->choices(engine);
}

std::shared_ptr<const StepData> Workload::step_data(const ExactProblem& problem, int devices) const {
  const RoutedNetwork* mine = routed();
  return mine == nullptr ? nullptr : mine->choices(problem, devices);
}

ForeignNetwork WorkloadKind::network_of(const ForeignModel&) const {
  refuse(Code::internal, "network_of", "a kind with foreign networks", name());
}

std::shared_ptr<Workload> WorkloadKind::described_by(const ForeignModel& model, const Options&) const {
  throw Error(Code::usage,
              "--config: expected with a chapter that trains networks of other libraries, 08 or 09 (for data "
              "parallelism 09, with --variant decoder-data-tensor --mesh data=N,tensor=1), given {} and the "
              "network {}",
              model.source, name());
}

ForeignNames WorkloadKind::block_of(const ForeignModel& model, const std::string&) const {
  throw Error(Code::usage, "--block: expected a file of parameters for a {}, given a block of {}", name(),
              model.source);
}

ExactProblem of_rows(ExactProblem problem, const std::vector<Range>& counted) {
  const Index width = problem.output_grad.shape.at(1);
  std::vector<float> kept(problem.output_grad.values.size());
  for (const Range& rows : counted)
    std::copy_n(problem.output_grad.values.begin() + rows.begin * width, rows.size() * width,
                kept.begin() + rows.begin * width);
  problem.output_grad.values = std::move(kept);
  problem.counted = counted;
  return problem;
}

ExactProblem with_halved_weights(ExactProblem problem) {
  for (auto& [name, weights] : problem.weights)
    for (float& value : weights.values)
      if (!problem.workload->must_stay(name)) value /= 2;
  return problem;
}

}  // namespace shard
