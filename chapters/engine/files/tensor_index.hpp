#pragma once

#include <map>
#include <string>
#include <string_view>

namespace shard {

/// The index of a network in several files, as Hugging Face's library writes it.
struct TensorIndex {
  static constexpr const char* file_name = "model.safetensors.index.json";

  std::map<std::string, std::string> file_of;  ///< `weight_map`: in which file of the folder each tensor is
  std::string metadata = "{}";                 ///< what else it says: a JSON object
};

/// Whether a path that an index names stays in its folder, and can be one of a file.
bool is_inside(const std::string& file);

/// The index in a text; `path` is its file's, for messages. \throws Error file when it is malformed, or names
/// a path that leads out of its folder
TensorIndex parse_tensor_index(std::string_view text, const std::string& path);
/// The same of a file. \throws Error file also when it cannot be read
TensorIndex read_tensor_index(const std::string& path);

}  // namespace shard
