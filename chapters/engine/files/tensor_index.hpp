#pragma once

#include <map>
#include <string>
#include <string_view>

namespace shard {

/// The index of a network in several files, in the format of Hugging Face's library.
struct TensorIndex {
  static constexpr const char* file_name = "model.safetensors.index.json";

  std::map<std::string, std::string> file_of;  ///< `weight_map`: the file of each tensor, in the same folder
  std::string metadata = "{}";                 ///< the other members: a JSON object
};

/// Whether a path in an index is a file's, inside the folder.
bool is_inside(const std::string& file);

/// Parses an index; `path` is the file's name in messages. \throws Error file when it is malformed, or names
/// a path outside its folder
TensorIndex parse_tensor_index(std::string_view text, const std::string& path);
/// Parses a file. \throws Error file also when it cannot be read
TensorIndex read_tensor_index(const std::string& path);

}  // namespace shard
