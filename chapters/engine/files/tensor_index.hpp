#pragma once

#include <map>
#include <string>

namespace shard {

/// The index of a network in several files, as Hugging Face's library writes it.
struct TensorIndex {
  static constexpr const char* file_name = "model.safetensors.index.json";

  std::map<std::string, std::string> file_of;  ///< `weight_map`: in which file of the folder each tensor is
  std::string metadata = "{}";                 ///< what else it says: a JSON object
};

/// Whether a path that an index names stays in its folder.
bool is_inside(const std::string& file);

/// \throws Error file when it cannot be read or is malformed, or when it names a path that leads out of its
/// folder
TensorIndex read_tensor_index(const std::string& path);

}  // namespace shard
