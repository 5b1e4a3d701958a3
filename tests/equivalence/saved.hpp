#pragma once

/// Training that is saved, and compared with the unsharded network's.

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

#include "engine/checkpoints/saved_checkpoint.hpp"
#include "tests/equivalence/equivalence.hpp"

namespace shard::testing {

/// A folder that all devices of a group see, in memory where the system has such files; gone at the end.
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

/// Saves with files so small that tensors stand alone.
inline void save_for_test(ShardedEngine& engine, Optimizer& optimizer, const Workload& network,
                          const std::string& folder, const std::string& format, Index step) {
  std::vector<std::string> order;
  for (const Parameter& p : network.parameters()) order.push_back(p.name);
  save_training(engine, optimizer, order, folder, {format, 64},
                {step, network.kind().name(), {{"--seed", "0"}}});
}

/// Where a checkpoint first differs from these weights and momenta; nothing if nowhere. A parameter without
/// momenta has zeros.
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
