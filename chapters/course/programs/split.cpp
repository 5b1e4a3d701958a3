///     mpirun --oversubscribe -n 1 build/course/split FOLDER OUT
///
/// Divides tensors among files of limited size. FOLDER has job.json, {"bytes": [40, 12], "most": 50}. Results are
/// "file" and "place": in which file each tensor is, and at which place of it, counted from 0; and "files": how many.

#include "engine/checkpoints/split.hpp"

#include <nlohmann/json.hpp>

#include "engine/files/json_file.hpp"
#include "parts.hpp"

namespace shard::course {

void run(Communicator& world, const std::string& folder, const std::string& out) {
  const nlohmann::json job = read_json_object(folder + "/job.json");
  std::vector<NamedSize> tensors;
  for (const std::uint64_t bytes : job.at("bytes"))
    tensors.push_back({std::to_string(tensors.size()), bytes});
  const Index count = static_cast<Index>(tensors.size());
  // −1: of a tensor that is in no file
  HostTensor file{{count}, std::vector<float>(tensors.size(), -1)}, place = file;
  const std::vector<std::vector<std::string>> files = split_by_size(tensors, job.at("most"));
  for (std::size_t f = 0; f < files.size(); ++f)
    for (std::size_t p = 0; p < files[f].size(); ++p) {
      const std::size_t tensor = std::stoul(files[f][p]);
      file.values.at(tensor) = static_cast<float>(f);
      place.values.at(tensor) = static_cast<float>(p);
    }
  Parts parts;
  parts.add("file", {{0}, file});
  parts.add("place", {{0}, place});
  const HostTensor number{{1}, {static_cast<float>(files.size())}};
  parts.add("files", {{0}, number});
  parts.write(out, world.device_id());
}

}  // namespace shard::course
