#include "engine/program/commands/costs_of_step.hpp"

#include <algorithm>
#include <iterator>

#include "engine/device/books/memory.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/gathered.hpp"

namespace shard {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Traffic, messages, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CostsOfStep, parameters, gradients, state, activations, buffers, peak,
                                   operations, sent, along)

namespace {

/// While such an object lives, tokens choose experts in turn.
struct ChoosingInTurn {
  ChoosingInTurn() { choose_in_turn(true); }
  ~ChoosingInTurn() { choose_in_turn(false); }
  ChoosingInTurn(const ChoosingInTurn&) = delete;
  ChoosingInTurn& operator=(const ChoosingInTurn&) = delete;
};

/// A batch of equal rows.
class SameRows : public TrainingBatch {
 public:
  explicit SameRows(const Workload& network) : row_(network.random_input(1, 0)) {}

  Tensor input(Range rows) const override {
    Shape shape = row_.shape;
    shape[0] = rows.size();
    std::vector<float> values;
    values.reserve(row_.values.size() * static_cast<std::size_t>(rows.size()));
    for (Index row = rows.begin; row < rows.end; ++row)
      values.insert(values.end(), row_.values.begin(), row_.values.end());
    return Tensor::from_host(std::move(shape), values);
  }
  Tensor loss_gradient(const Tensor& output, Index) override { return Tensor(output.shape()); }
  double loss(Communicator&) const override { return 0; }

 private:
  HostTensor row_;
};

/// The costs of the second step on this device. The first step, with few rows, makes the optimizer's state.
CostsOfStep my_costs(const Run& run, Index rows_of_first) {
  const ChoosingInTurn choosing;
  const std::unique_ptr<ShardedEngine> engine = run.variant.make(run.group, run.network, run.options);
  const std::unique_ptr<Optimizer> optimizer = optimizer_of(run);
  load_beginning(run, *engine, *optimizer);
  const Index parameters = ledger().live(Purpose::parameters);
  SameRows batch(run.network);
  Training of_first = run.training;
  of_first.batch = rows_of_first;
  training_step({run.group, run.variant, run.network, run.options, of_first}, *engine, *optimizer, batch);
  ledger().reset();
  note_parameters(*engine);
  note_section(run.variant.name, true);
  training_step(run, *engine, *optimizer, batch);
  note_section("after " + run.variant.name, false);
  return {.parameters = parameters,
          .gradients = ledger().peak(Purpose::gradients),
          .state = ledger().live(Purpose::optimizer),
          .activations = ledger().peak(Purpose::activations),
          .buffers = ledger().peak(Purpose::buffers),
          .peak = ledger().peak(),
          .operations = ledger().flops(),
          .sent = ledger().traffic(),
          .along = engine->sent_along()};
}

/// The devices that probably have the same costs. Without a mesh: all of them.
AlikeDevices perhaps_alike(const Run& run, int devices) {
  if (!run.variant.mesh) return {devices, 1};
  int stride = devices;
  const MeshShape mesh = run.variant.mesh(devices, run.options);
  for (const MeshAxis& axis : mesh.axes()) {
    stride /= axis.size;
    if (axis.name == run.variant.repeats_along) return {axis.size, stride};
  }
  return {};
}

}  // namespace

std::vector<CostsOfStep> costs_of_step(const Run& run) {
  if (run.variant.require) run.variant.require(run.group.num_devices(), run.network, run.options);
  return gather(run.group, "costs", my_costs(run, 1));
}

std::vector<CostsOfStep> costs_of_step(const Run& run, int devices) {
  if (run.group.num_devices() == devices) return costs_of_step(run);
  if (run.variant.require) run.variant.require(devices, run.network, run.options);
  const AlikeDevices alike = perhaps_alike(run, devices);
  // A row for each of the alike devices, so that they do the same in the first step, too.
  const auto results = results_of_job(devices, alike, [&](Communicator& world) {
    return to_bytes(my_costs({world, run.variant, run.network, run.options, run.training}, alike.count));
  });
  if (!results)
    throw Error(Code::usage, "--devices: expected {}, the devices that run, given {}",
                run.group.num_devices(), devices);
  std::vector<CostsOfStep> all;
  std::ranges::transform(*results, std::back_inserter(all), from_bytes<CostsOfStep>);
  return all;
}

}  // namespace shard
