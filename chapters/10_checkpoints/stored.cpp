#include "stored.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/basics/printable.hpp"
#include "engine/checkpoints/split.hpp"
#include "engine/device/error.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/safetensors/element_types.hpp"

namespace shard::checkpoints {

namespace fs = std::filesystem;

namespace {

const std::vector<std::string> stems = {"model", "optimizer"};

/// The names of a folder's files with tensors.
std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) {
    return !name.ends_with(".safetensors") || !is_checkpoint_file(name);
  });
  return names;
}

}  // namespace

StoredCheckpoint::StoredCheckpoint(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    add_file(path);
    return;
  }
  folder_ = path + '/';
  if (has_manifest(path)) manifest_ = read_manifest(path);
  bool has_index = manifest_.has_value();
  if (manifest_ && manifest_->format == "distributed") {
    add_parts(manifest_->tensors);
  } else {
    for (const std::string& stem : stems) switch (stored_in(path, stem)) {
        case StoredIn::one_file:
          add_file(stem + ".safetensors");
          break;
        case StoredIn::indexed_files:
          add_indexed(stem), has_index = true;
          break;
        case StoredIn::neither:
          add_all(stem);
      }
  }
  if (files_.empty() && !has_index) refuse_without_parameters(path);
  note_other_files();
}

const SafetensorsFile& StoredCheckpoint::opened(const std::string& file) {
  return files_.try_emplace(file, folder_ + file).first->second;
}

void StoredCheckpoint::add_all(const std::string& stem) {
  for (const std::string& name : files_of(path_))
    if (name.starts_with(stem)) add_file(name);
}

void StoredCheckpoint::add_file(const std::string& name) {
  const SafetensorsFile& file = opened(name);
  metadata_.insert(file.metadata().begin(), file.metadata().end());
  for (const auto& [tensor, entry] : file.entries()) {
    const Stored stored{entry.dtype, entry.shape, entry.end - entry.begin, {{name, all_of(entry.shape)}}};
    if (!tensors_.try_emplace(tensor, stored).second)
      problems_.push_back(fmt::format("tensor \"{}\": in two files, {} and {}", printable(tensor),
                                      printable(tensors_.at(tensor).parts[0].file), printable(name)));
  }
}

void StoredCheckpoint::add_indexed(const std::string& stem) {
  TensorIndex index = read_tensor_index(folder_ + stem + ".safetensors.index.json");
  if (stem == "model") index_metadata_ = std::move(index.metadata);
  for (const auto& [tensor, file] : index.file_of)
    if (!files_.contains(file)) add_file(file);
  for (const auto& [tensor, file] : index.file_of)
    if (!files_.at(file).entries().contains(tensor))
      problems_.push_back(fmt::format("tensor \"{}\": missing: the index names {}, which does not have it",
                                      printable(tensor), printable(file)));
  for (const auto& [tensor, stored] : tensors_)
    if (stored.stem() == stem && !index.file_of.contains(tensor))
      problems_.push_back(fmt::format("tensor \"{}\": too much: in {}, and the index does not name it",
                                      printable(tensor), printable(stored.parts[0].file)));
}

void StoredCheckpoint::add_parts(const std::map<std::string, StoredParts>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    Stored stored{"", tensor.shape, 0, tensor.parts};
    for (const auto& [file, ranges] : tensor.parts) {
      const auto& entries = opened(file).entries();
      const auto found = entries.find(name);
      if (found == entries.end() || found->second.shape != shape_of(ranges) ||
          (!stored.dtype.empty() && stored.dtype != found->second.dtype)) {
        problems_.push_back(
            fmt::format("tensor \"{}\": missing: the manifest names {}, which has no such part",
                        printable(name), printable(file)));
        continue;
      }
      stored.dtype = found->second.dtype;
      stored.bytes += found->second.end - found->second.begin;
    }
    if (!stored.parts.empty()) tensors_[name] = std::move(stored);
  }
}

void StoredCheckpoint::note_other_files() {
  for (const std::string& name : files_of(path_))
    if (!files_.contains(name))
      problems_.push_back(
          fmt::format("{}: too much: {}", printable(name),
                      stored_in(path_, name.substr(0, name.find_first_of(".-"))) == StoredIn::one_file
                          ? "readers take model.safetensors alone, which is there"
                          : "the index does not name this file"));
}

std::map<std::string, std::uint64_t> StoredCheckpoint::bytes_by_file() const {
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& [name, file] : files_)
    for (const auto& [tensor, entry] : file.entries()) bytes[name] += entry.end - entry.begin;
  return bytes;
}

void StoredCheckpoint::require_whole() const {
  if (!problems_.empty()) throw Error(Code::file, one_line(path_) + ": " + problems_.front());
}

std::vector<std::byte> StoredCheckpoint::read(const std::string& name, std::uint64_t offset,
                                              std::uint64_t bytes) const {
  std::vector<std::byte> data(bytes);
  const Stored& tensor = tensors_.at(name);
  if (tensor.parts.size() == 1) {
    files_.at(tensor.parts[0].file).read_bytes(name, offset, bytes, data.data());
    return data;
  }
  const auto size = static_cast<Index>(safetensors::element_bytes(tensor.dtype));
  const Index begin = static_cast<Index>(offset) / size, end = begin + static_cast<Index>(bytes) / size;
  for (const auto& [file, ranges] : tensor.parts) {
    struct Run {
      Index to, from, length;
    };
    std::vector<Run> runs;  // of the part, inside these bytes
    for_each_run(tensor.shape, ranges, [&](Index in_whole, Index in_part, Index length) {
      const Index first = std::max(begin, in_whole), last = std::min(end, in_whole + length);
      if (first < last) runs.push_back({first - begin, in_part + first - in_whole, last - first});
    });
    if (runs.empty()) continue;
    const Index from = runs.front().from, count = runs.back().from + runs.back().length - from;
    std::vector<std::byte> some(static_cast<std::size_t>(count * size));
    files_.at(file).read_bytes(name, static_cast<std::uint64_t>(from * size), some.size(), some.data());
    for (const Run& run : runs)
      std::memcpy(data.data() + run.to * size, some.data() + (run.from - from) * size,
                  static_cast<std::size_t>(run.length * size));
  }
  return data;
}

}  // namespace shard::checkpoints
