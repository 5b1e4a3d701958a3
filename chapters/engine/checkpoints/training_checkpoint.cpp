#include "engine/checkpoints/training_checkpoint.hpp"

namespace shard {

std::vector<HeldPart> held_parameters(ShardedEngine& engine) {
  std::vector<HeldPart> held;
  for (const auto& [name, rows, whole, ranges] : engine.trainable())
    held.push_back({name, whole, ranges, rows});
  return held;
}

void save_training(ShardedEngine& engine, Optimizer& optimizer, const std::vector<std::string>& order,
                   const std::string& path, const SaveForm& form, const TrainingRecord& record) {
  std::vector<SavedTensors> all = {{"model", held_parameters(engine), order}};
  SavedTensors state{"optimizer", {}, {}};
  const std::vector<std::string> kept = optimizer.state_names();
  for (const Trainable& t : engine.trainable())
    for (std::size_t i = 0; i < kept.size(); ++i)
      state.held.push_back({t.name + '/' + kept[i], t.whole, t.ranges, Rows(optimizer.state_of(t)[i])});
  for (const std::string& name : order)
    for (const std::string& what : kept) state.order.push_back(name + '/' + what);
  if (!kept.empty()) all.push_back(std::move(state));
  save_checkpoint(engine.group(), path, form, all, record);
}

void load_training(ShardedEngine& engine, Optimizer& optimizer, const std::string& folder,
                   const Manifest& manifest) {
  engine.load_checkpoint(*open_saved(folder, manifest, "model"));
  const std::vector<std::string> kept = optimizer.state_names();
  optimizer.go_on_after(manifest.training ? manifest.training->step : 0);
  if (kept.empty()) return;
  const std::unique_ptr<Checkpoint> stored = open_saved(folder, manifest, "optimizer");
  for (const Trainable& t : engine.trainable()) {
    std::vector<Tensor>& state = optimizer.state_of(t);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      state[i] = stored->part(t.name + '/' + kept[i], t.ranges);
      state[i].charge_to(Purpose::optimizer);
    }
  }
}

}  // namespace shard
