#include "engine/files/tensor_index.hpp"

#include <algorithm>
#include <climits>
#include <filesystem>

#include "engine/basics/printable.hpp"
#include "engine/files/json_file.hpp"
#include "engine/files/regular_file.hpp"

namespace shard {

bool is_inside(const std::string& name) {
  const std::filesystem::path file(name);
  return !file.empty() && file.is_relative() && std::ranges::find(file, "..") == file.end() &&
         name.size() < PATH_MAX && name.find('\0') == std::string::npos;
}

namespace {

TensorIndex index_in(const nlohmann::json& json, const std::string& path) {
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object())
    bad_file(path, "no weight_map", "an object of tensors and their files",
             map == json.end() ? "none" : map->type_name());
  TensorIndex index;
  for (const auto& [name, file] : map->items()) {
    const std::string tensor = "tensor \"" + printable(name) + '"';
    if (!file.is_string()) bad_file(path, tensor, "the name of a file", file.type_name());
    index.file_of[name] = file.get<std::string>();
    if (!is_inside(index.file_of[name]))
      bad_file(path, tensor, "a file in the folder", '"' + printable(index.file_of[name]) + '"');
  }
  if (const auto said = json.find("metadata"); said != json.end() && said->is_object())
    index.metadata = said->dump();
  return index;
}

}  // namespace

TensorIndex parse_tensor_index(std::string_view text, const std::string& path) {
  return index_in(parse_json_object(text, path), path);
}

TensorIndex read_tensor_index(const std::string& path) {
  return index_in(read_json_object(path), path);
}

}  // namespace shard
