#include "engine/files/model_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <ranges>

#include "engine/files/file_checkpoint.hpp"
#include "engine/files/json_file.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/tensor_index.hpp"
#include "engine/printable.hpp"

namespace shard {

namespace {

using namespace checkpoint;

/// Tensors of several files, by an index that says which are in which.
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
    all.erase(std::ranges::unique(all).begin(), all.end());
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

  /// The file that has a tensor; null if none has. Of those that have one that the index does not know, the
  /// last counts, as in Hugging Face's library.
  const Checkpoint* holder(const std::string& name) const {
    if (const auto found = file_of_.find(name); found != file_of_.end()) {
      const Checkpoint& file = opened(found->second);
      if (file.contains(name)) return &file;
      bad_file(index_, "tensor \"" + printable(name) + '"', "in " + one_line(file.source()), "none there");
    }
    for (const auto& [file, unused] : std::views::reverse(files_))
      if (opened(file).contains(name)) return &opened(file);
    return nullptr;
  }
  const Checkpoint& known_holder(const std::string& name) const {
    const Checkpoint* file = holder(name);
    if (file == nullptr) refuse_unknown(source(), name);
    return *file;
  }

  std::string folder_;
  std::string index_;
  std::map<std::string, std::string> file_of_;                        // by tensor
  mutable std::map<std::string, std::unique_ptr<Checkpoint>> files_;  // null: not open
};

/// Adds the hyper-parameters of an object, whose own name stands before theirs: "rope_parameters.rope_theta".
void add_config(const nlohmann::json& json, const std::string& before,
                std::map<std::string, std::string>& to) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) add_config(value, before + name + ".", to);
    to[before + name] = value.is_string()       ? value.get<std::string>()
                        : value.is_structured() ? value.type_name()
                                                : value.dump();
  }
}

/// Also of a symbolic link to nothing: opening it says so.
bool has_name(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

}  // namespace

std::unique_ptr<Checkpoint> open_stored(const std::string& folder, const std::string& stem) {
  const std::string name = stem + ".safetensors", one = folder + '/' + name, index = one + ".index.json";
  if (has_name(one)) return open_checkpoint(one);
  if (has_name(index)) return std::make_unique<IndexedCheckpoint>(folder, index);
  bad_file(folder, "no parameters", name + " or " + name + ".index.json", "neither");
}

bool has_model_config(const std::string& folder) {
  return has_name(folder + "/config.json");
}

ForeignModel read_model_config(const std::string& path) {
  ForeignModel model{path, {}, nullptr};
  add_config(read_json_object(path), "", model.config);
  return model;
}

ForeignModel open_model_folder(const std::string& path) {
  ForeignModel model = read_model_config(path + "/config.json");
  model.source = path;
  model.parameters = open_stored(path);
  return model;
}

}  // namespace shard
