#include "engine/checkpoints/split.hpp"

#include <fmt/format.h>

#include <regex>

#include "engine/byte_sizes.hpp"
#include "engine/checkpoints/manifest.hpp"
#include "engine/device/error.hpp"
#include "engine/printable.hpp"

namespace shard {

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
    throw Error(Code::usage, fmt::format("{}: expected a size such as 2GB, 512MB or 64KiB, given {}", option,
                                         printable(text)));
  return static_cast<std::uint64_t>(*bytes);
}

}  // namespace shard
