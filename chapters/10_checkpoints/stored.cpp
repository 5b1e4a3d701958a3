#include "stored.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "engine/device/error.hpp"
#include "engine/files/tensor_index.hpp"
#include "engine/printable.hpp"
#include "split.hpp"

namespace shard::checkpoints {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> files_of_model(const std::string& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) {
    return name == TensorIndex::file_name || !is_file_of_model(name);
  });
  return names;
}

}  // namespace

StoredCheckpoint::StoredCheckpoint(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    add_file("", path);
  else if (has_name(path + '/' + TensorIndex::file_name))
    read_index(path + '/');
  else
    add_all(path);
}

void StoredCheckpoint::add_all(const std::string& folder) {
  const std::vector<std::string> names = files_of_model(folder);
  if (names.empty())
    bad_file(folder, "no parameters", fmt::format("model.safetensors or {}", TensorIndex::file_name),
             "neither");
  for (const std::string& name : names) add_file(folder + '/', name);
}

void StoredCheckpoint::add_file(const std::string& folder, const std::string& name) {
  const SafetensorsFile& file = files_.try_emplace(name, folder + name).first->second;
  metadata_.insert(file.metadata().begin(), file.metadata().end());
  for (const auto& [tensor, entry] : file.entries()) {
    const bool is_new =
        tensors_.try_emplace(tensor, Stored{entry.dtype, entry.shape, entry.end - entry.begin, name}).second;
    if (!is_new)
      problems_.push_back(fmt::format("tensor \"{}\": in two files, {} and {}", printable(tensor),
                                      printable(tensors_.at(tensor).file), printable(name)));
  }
}

void StoredCheckpoint::read_index(const std::string& folder) {
  TensorIndex index = read_tensor_index(folder + TensorIndex::file_name);
  index_metadata_ = std::move(index.metadata);
  for (const auto& [tensor, file] : index.file_of)
    if (!files_.contains(file)) add_file(folder, file);
  for (const auto& [tensor, file] : index.file_of)
    if (!files_.at(file).entries().contains(tensor))
      problems_.push_back(fmt::format("tensor \"{}\": missing: the index names {}, which does not have it",
                                      printable(tensor), printable(file)));
  for (const auto& [tensor, stored] : tensors_)
    if (!index.file_of.contains(tensor))
      problems_.push_back(fmt::format("tensor \"{}\": too much: in {}, and the index does not name it",
                                      printable(tensor), printable(stored.file)));
  for (const std::string& name : files_of_model(folder))
    if (!files_.contains(name))
      problems_.push_back(fmt::format("{}: too much: the index does not name this file", printable(name)));
}

void StoredCheckpoint::require_whole() const {
  if (!problems_.empty()) throw Error(Code::file, one_line(path_) + ": " + problems_.front());
}

std::vector<std::byte> StoredCheckpoint::read(const std::string& name, std::uint64_t offset,
                                              std::uint64_t bytes) const {
  std::vector<std::byte> data(bytes);
  files_.at(tensors_.at(name).file).read_bytes(name, offset, bytes, data.data());
  return data;
}

}  // namespace shard::checkpoints
