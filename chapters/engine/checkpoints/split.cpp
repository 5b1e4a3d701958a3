#include "engine/checkpoints/split.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <regex>

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
  static const std::regex form("([0-9]+(?:\\.[0-9]+)?) ?(?:([KMGT])(i?)B)?", std::regex::icase);
  std::smatch parts;
  double bytes = 0;
  if (text.size() < 32 && std::regex_match(text, parts, form)) {
    const std::string letters = "KMGT";
    const char letter = parts[2].matched ? static_cast<char>(std::toupper(*parts[2].first)) : '\0';
    const int power = letter == '\0' ? 0 : static_cast<int>(letters.find(letter)) + 1;
    bytes = std::floor(std::stod(parts[1]) * std::pow(parts[3].length() > 0 ? 1024 : 1000, power));
  }
  if (bytes < 1 || bytes > 9e18)
    throw Error(Code::usage, fmt::format("{}: expected a size such as 2GB, 512MB or 64KiB, given {}", option,
                                         printable(text)));
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace shard
