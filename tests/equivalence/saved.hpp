#pragma once

/// Saves training for tests, and compares a checkpoint with expected weights and momenta.

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

#include "engine/checkpoints/saved_checkpoint.hpp"
#include "tests/equivalence/equivalence.hpp"

namespace shard::testing {

/// A folder that all devices of a group see, in memory (/dev/shm) if possible. The destructor removes it.
class CommonFolder {
 public:
  explicit CommonFolder(Communicator& on) : group_(on) {
    std::string path =
        (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/shardbook_test_XXXXXX");
    if (on.device_id() == 0 && mkdtemp(path.data()) == nullptr)
      throw Error(Code::file, path + ": cannot be made");
    path_ = on.gather_for_all("folder", path)[0];
  }
  ~CommonFolder() {
    std::error_code ignored;
    if (group_.device_id() == 0) std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + '/' + name; }

 private:
  Communicator& group_;
  std::string path_;
};

inline const std::vector<std::string> formats = {"gathered", "sharded", "distributed"};

/// Saves in files of at most 64 bytes, so that most tensors have a file of their own.
inline void save_for_test(ShardedEngine& engine, Optimizer& optimizer, const Workload& network,
                          const std::string& folder, const std::string& format, Index step) {
  std::vector<std::string> order;
  for (const Parameter& p : network.parameters()) order.push_back(p.name);
  save_training(engine, optimizer, order, folder, {format, 64},
                {NetworkRecord{network.kind().name(), {}}, TrainingRecord{step, {{"--seed", "0"}}}});
}

/// The first difference of a checkpoint from these weights and momenta, or an empty text. Missing momenta are 0.
inline std::string difference_of_saved(const std::string& folder, const std::string& format,
                                       const std::map<std::string, HostTensor>& weights,
                                       const std::map<std::string, std::vector<float>>& momenta) {
  const Manifest manifest = read_manifest(folder);
  if (manifest.format != format) return "format " + manifest.format;
  const auto model = open_saved(folder, manifest, "model"), state = open_saved(folder, manifest, "optimizer");
  if (model->names().size() != weights.size() || state->names().size() != weights.size())
    return "other tensors";
  for (const auto& [name, weight] : weights) {
    const Ranges all = all_of(weight.shape);
    if (model->shape(name) != weight.shape || model->read(name, all) != weight.values) return name;
    const auto found = momenta.find(name);
    const std::vector<float> zeros(weight.values.size());
    if (state->read(name + "/momentum", all) != (found == momenta.end() ? zeros : found->second))
      return name + "/momentum";
  }
  return "";
}

}  // namespace shard::testing
