#include "engine/checkpoints/index_text.hpp"

#include <nlohmann/json.hpp>

#include "engine/checkpoints/split.hpp"

namespace shard {

std::string index_text(const std::string& metadata, const std::string& stem,
                       const std::vector<std::vector<std::string>>& files, std::uint64_t total) {
  nlohmann::ordered_json index = {{"metadata", nlohmann::ordered_json::parse(metadata)},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  index["metadata"]["total_size"] = total;
  for (std::size_t f = 0; f < files.size(); ++f)
    for (const std::string& name : files[f])
      index["weight_map"][name] = shard_file_name(stem, f, files.size());
  return index.dump(2, ' ', true);
}

}  // namespace shard
