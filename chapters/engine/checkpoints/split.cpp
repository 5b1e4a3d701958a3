#include "engine/checkpoints/split.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <tuple>

#include "engine/basics/options.hpp"
#include "engine/basics/printable.hpp"
#include "engine/checkpoints/manifest.hpp"
#include "engine/device/error.hpp"

namespace shard {

namespace {

/// The name in transformers 5, which joins the matrices of all experts of a block into two tensors.
std::string spelling_of_transformers(std::string name) {
  const std::string experts = ".block_sparse_moe.experts.", gate = ".block_sparse_moe.gate.";
  if (const std::size_t at = name.find(gate); at != name.npos) name.replace(at, gate.size(), ".mlp.gate.");
  const std::size_t at = name.find(experts), number = at + experts.size(), dot = name.find('.', number);
  if (at == name.npos || dot == name.npos) return name;
  const std::string matrix = name.substr(dot + 1, 2);  // w1, w2 or w3
  return name.substr(0, at) + ".mlp.experts." + (matrix == "w2" ? "down_proj." : "gate_up_proj.") + matrix +
         '.' + name.substr(number, dot - number);
}

/// The parts of a name: whether a part is more than a number, its text, and the number at its end or -1.
std::vector<std::tuple<bool, std::string, std::int64_t>> parts_of(const std::string& name) {
  std::vector<std::tuple<bool, std::string, std::int64_t>> parts;
  std::istringstream text(spelling_of_transformers(name));
  for (std::string part; std::getline(text, part, '.');) {
    const std::size_t digits = part.find_last_not_of("0123456789") + 1, length = part.size() - digits;
    const bool ends_in_number = length > 0 && length <= 18;
    parts.emplace_back(digits > 0, ends_in_number ? part.substr(0, digits) : part,
                       ends_in_number ? std::stoll(part.substr(digits)) : -1);
  }
  return parts;
}

}  // namespace

void sort_for_files(std::vector<NamedSize>& tensors) {
  std::multimap<std::vector<std::tuple<bool, std::string, std::int64_t>>, NamedSize> sorted;
  for (NamedSize& tensor : tensors) sorted.emplace(parts_of(tensor.name), std::move(tensor));
  tensors.clear();
  for (auto& [parts, tensor] : sorted) tensors.push_back(std::move(tensor));
}

std::vector<std::vector<std::string>> split_by_size(const std::vector<NamedSize>& tensors,
                                                    std::uint64_t most) {
  std::vector<std::vector<std::string>> files;
  std::vector<std::string> open;  // the file that is being filled
  std::uint64_t filled = 0;
  for (const auto& [name, bytes] : tensors) {
    if (bytes > most) {
      files.push_back({name});
      continue;
    }
    if (filled + bytes > most) {
      files.push_back(std::move(open));
      open = {};
      filled = 0;
    }
    open.push_back(name);
    filled += bytes;
  }
  if (!open.empty()) files.push_back(std::move(open));
  return files;
}

std::string shard_file_name(const std::string& stem, std::size_t file, std::size_t files) {
  if (files == 1) return stem + ".safetensors";
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, file + 1, files);
}

std::string device_file_name(const std::string& stem, int device, int devices) {
  return fmt::format("{}-device-{:05}-of-{:05}.safetensors", stem, device + 1, devices);
}

bool is_checkpoint_file(const std::string& name) {
  static const std::regex ours(
      "(model|optimizer)((-device)?-[0-9]{5,}-of-[0-9]{5,})?\\.safetensors(\\.index\\.json)?");
  return name == Manifest::file_name || std::regex_match(name, ours);
}

std::uint64_t parse_size(const std::string& option, const std::string& text) {
  const std::optional<std::int64_t> bytes = bytes_in(text);
  if (!bytes || *bytes < 1)
    throw Error(Code::usage, "{}: expected a size such as 2GB, 512MB or 64KiB, given {}", option,
                printable(text));
  return static_cast<std::uint64_t>(*bytes);
}

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
