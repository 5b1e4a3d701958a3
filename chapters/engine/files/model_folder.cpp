#include "engine/files/model_folder.hpp"

#include <algorithm>
#include <climits>
#include <filesystem>
#include <set>

#include "engine/basics/near_names.hpp"
#include "engine/basics/printable.hpp"
#include "engine/files/json_file.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/weights/foreign_config.hpp"

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

namespace {

/// Tensors of several files, with an index that names the file of each tensor.
class IndexedCheckpoint : public Checkpoint {
 public:
  IndexedCheckpoint(const std::string& folder, const std::string& index)
      : folder_(folder), index_(index), file_of_(read_tensor_index(index).file_of) {
    for (const auto& [name, file] : file_of_) files_[file] = nullptr;
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [file, unused] : files_)
      for (std::string& name : opened(file).names()) all.push_back(std::move(name));
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  bool contains(const std::string& name) const override { return holder(name) != nullptr; }
  Shape shape(const std::string& name) const override { return known_holder(name).shape(name); }
  std::string source() const override { return folder_; }

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    return known_holder(name).read(name, part);
  }

  const Checkpoint& opened(const std::string& file) const {
    std::unique_ptr<Checkpoint>& open = files_.at(file);
    if (!open) open = open_checkpoint(folder_ + "/" + file);
    return *open;
  }

  /// The file that has a tensor; null without one. If the index does not list the tensor, the last file that
  /// has it counts, as in Hugging Face's library.
  const Checkpoint* holder(const std::string& name) const {
    if (const auto found = file_of_.find(name); found != file_of_.end()) {
      const Checkpoint& file = opened(found->second);
      if (file.contains(name)) return &file;
      bad_file(index_, "tensor \"" + printable(name) + '"', "in " + one_line(file.source()), "none there");
    }
    for (auto file = files_.rbegin(); file != files_.rend(); ++file)
      if (opened(file->first).contains(name)) return &opened(file->first);
    return nullptr;
  }
  const Checkpoint& known_holder(const std::string& name) const {
    const Checkpoint* file = holder(name);
    if (file == nullptr) refuse_unknown(name);
    return *file;
  }

  std::string folder_;
  std::string index_;
  std::map<std::string, std::string> file_of_;                        // by tensor
  mutable std::map<std::string, std::unique_ptr<Checkpoint>> files_;  // null: not opened yet
};

constexpr std::size_t max_name_bytes = 64 << 20;  // of all hyper-parameters

/// Flattens the objects of a config.json.
struct FlatConfig {
  const std::string& path;
  std::map<std::string, std::string> values{};
  std::size_t name_bytes = 0;

  /// Adds the members of an object, with the object's name before each of theirs:
  /// "rope_parameters.rope_theta".
  void add(const nlohmann::json& json, const std::string& before) {
    for (const auto& [name, value] : json.items()) {
      name_bytes += before.size() + name.size();  // one long name may precede many names
      if (name_bytes > max_name_bytes)
        bad_file(path, "names of hyper-parameters too long",
                 std::to_string(max_name_bytes) + " bytes in all, those of objects before each of theirs",
                 "more");
      if (value.is_object()) add(value, before + name + ".");
      values[before + name] = text_of(value);
    }
  }
  static std::string text_of(const nlohmann::json& value) {
    if (value.is_object()) return value.empty() ? "{}" : "object";
    if (!value.is_string()) return value.dump();
    const std::string& text = value.get_ref<const std::string&>();
    return text.empty() || nlohmann::json::accept(text) ? value.dump() : text;
  }
};

ForeignModel config_in(const nlohmann::json& json, const std::string& path) {
  FlatConfig config{path};
  config.add(json, "");
  return {path, std::move(config.values), nullptr};
}

}  // namespace

StoredIn stored_in(const std::string& folder, const std::string& stem) {
  const std::string one = folder + '/' + stem + ".safetensors";
  if (has_name(one)) return StoredIn::one_file;
  return has_name(one + ".index.json") ? StoredIn::indexed_files : StoredIn::neither;
}

void refuse_without_parameters(const std::string& folder, const std::string& stem) {
  const std::string name = stem + ".safetensors";
  bad_file(folder, "no parameters", name + " or " + name + ".index.json",
           "neither" + names_near(name, names_in(folder)));
}

std::unique_ptr<Checkpoint> open_stored(const std::string& folder, const std::string& stem) {
  const std::string one = folder + '/' + stem + ".safetensors";
  switch (stored_in(folder, stem)) {
    case StoredIn::one_file:
      return open_checkpoint(one);
    case StoredIn::indexed_files:
      return std::make_unique<IndexedCheckpoint>(folder, one + ".index.json");
    default:
      refuse_without_parameters(folder, stem);
  }
}

std::map<std::string, std::string> stored_types(const std::string& folder) {
  std::set<std::string> files;
  if (stored_in(folder) == StoredIn::one_file)
    files.insert("model.safetensors");
  else
    for (const auto& [tensor, file] : read_tensor_index(folder + '/' + TensorIndex::file_name).file_of)
      files.insert(file);
  std::map<std::string, std::string> types;
  for (const std::string& file : files) {
    const SafetensorsFile opened(folder + '/' + file);
    for (const auto& [name, entry] : opened.entries()) types[name] = entry.dtype;
  }
  return types;
}

bool has_model_config(const std::string& folder) {
  return has_name(folder + "/config.json");
}

ForeignModel read_model_config(const std::string& path) {
  std::error_code cannot_be_seen;
  if (std::filesystem::is_directory(path, cannot_be_seen)) return read_model_config(path + "/config.json");
  return config_in(read_json_object(path), path);
}

ForeignModel parse_model_config(std::string_view text, const std::string& path) {
  return config_in(parse_json_object(text, path), path);
}

std::vector<Index> end_tokens(const std::string& folder) {
  const bool is_of_generation = has_name(folder + "/generation_config.json");
  const std::string path = folder + (is_of_generation ? "/generation_config.json" : "/config.json");
  const nlohmann::json json = read_json_object(path);
  const nlohmann::json family = json.value("model_type", nlohmann::json());
  const FamilyDefaults defaults = defaults_of_family(family.is_string() ? family.get<std::string>() : "");
  const nlohmann::json otherwise = is_of_generation ? nlohmann::json() : nlohmann::json(defaults.end_token);
  const nlohmann::json given = json.value("eos_token_id", otherwise);
  std::vector<Index> tokens;
  for (const nlohmann::json& token :
       given.is_array() || given.is_null() ? given : nlohmann::json::array({given})) {
    if (!token.is_number_integer())
      bad_file(path, "eos_token_id", "a token, a list of tokens, or null", printable(given.dump(), 60));
    tokens.push_back(token.get<Index>());
  }
  return tokens;
}

ForeignModel open_model_folder(const std::string& path) {
  ForeignModel model = read_model_config(path + "/config.json");
  model.source = path;
  model.parameters = open_stored(path);
  return model;
}

}  // namespace shard
