#include "engine/checkpoints/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/files/json_file.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/header.hpp"

namespace shard {

namespace {

using nlohmann::json;

constexpr std::size_t max_parts = 4096;  // of a tensor: each pair of parts is compared

nlohmann::ordered_json to_json(const Ranges& ranges) {
  auto all = nlohmann::ordered_json::array();
  for (const auto& [begin, end] : ranges) all.push_back({begin, end});
  return all;
}

bool do_overlap(const Ranges& a, const Ranges& b) {
  for (std::size_t d = 0; d < a.size(); ++d)
    if (std::max(a[d].begin, b[d].begin) >= std::min(a[d].end, b[d].end)) return false;
  return true;
}

/// Reads one manifest. Its errors name the place of an unexpected value.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& path) : path_(path) {}

  Manifest read(const json& all) const {
    Manifest manifest;
    manifest.format = text(all, "format", "the manifest");
    const std::vector<std::string> formats = {"gathered", "sharded", "distributed"};
    if (std::ranges::find(formats, manifest.format) == formats.end())
      bad_file(path_, "format", "gathered, sharded or distributed", '"' + printable(manifest.format) + '"');
    for (const auto& [file, digest] : member(all, "digests", "the manifest", json::value_t::object).items())
      manifest.digests[inside(file)] = text(digest, "the digest of " + printable(file));
    if (manifest.format == "distributed")
      for (const auto& [name, tensor] : member(all, "tensors", "the manifest", json::value_t::object).items())
        manifest.tensors[name] = parts_of("tensor \"" + printable(name) + '"', tensor);
    if (all.contains("training")) manifest.training = training(all["training"]);
    if (all.contains("network"))
      manifest.network = {text(all["network"], "workload", "network"), options(all["network"], "network")};
    else if (manifest.training)
      manifest.network = take_network(text(all["training"], "workload", "training"), *manifest.training);
    return manifest;
  }

 private:
  const json& member(const json& of, const char* name, const std::string& where, json::value_t type) const {
    const auto found = of.is_object() ? of.find(name) : of.end();
    if (!of.is_object() || found == of.end() || found->type() != type)
      bad_file(path_, where, fmt::format("{} \"{}\"", json(type).type_name(), name),
               of.is_object() && found != of.end() ? found->type_name() : "none");
    return *found;
  }
  std::string text(const json& value, const std::string& what) const {
    if (!value.is_string()) bad_file(path_, what, "a text", value.type_name());
    return value.get<std::string>();
  }
  std::string text(const json& of, const char* name, const std::string& where) const {
    return member(of, name, where, json::value_t::string).get<std::string>();
  }
  Index number(const json& value, const std::string& what) const {
    constexpr auto most = static_cast<std::uint64_t>(INT64_MAX);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
      bad_file(path_, what, "a whole number below 2^63", printable(value.dump(), 60));
    return value.get<Index>();
  }
  std::string inside(const std::string& file) const {
    if (!is_inside(file)) bad_file(path_, "file", "one in the folder", '"' + printable(file) + '"');
    return file;
  }

  StoredParts parts_of(const std::string& who, const json& tensor) const {
    StoredParts stored;
    for (const json& extent : member(tensor, "shape", who, json::value_t::array))
      stored.shape.push_back(number(extent, who + ", shape"));
    if (!safetensors::tensor_bytes(stored.shape, sizeof(double)))
      bad_file(path_, who, "a size below 2^63 bytes", "a larger one");
    std::vector<Ranges> all;
    const json& parts = member(tensor, "parts", who, json::value_t::array);
    if (parts.size() > max_parts)
      bad_file(path_, who, fmt::format("at most {} parts", max_parts), std::to_string(parts.size()));
    for (const json& part : parts) {
      StoredPart& p = stored.parts.emplace_back();
      p.file = inside(text(part, "file", who));
      for (const json& range : member(part, "ranges", who, json::value_t::array)) {
        if (!range.is_array() || range.size() != 2)
          bad_file(path_, who + ", ranges", "pairs of numbers", printable(range.dump(), 60));
        p.ranges.push_back({number(range[0], who + ", ranges"), number(range[1], who + ", ranges")});
      }
      all.push_back(p.ranges);
    }
    if (const std::string why = why_no_tiling(stored.shape, all); !why.empty())
      bad_file(path_, who, "parts that tile " + to_string(stored.shape), why);
    return stored;
  }

  std::map<std::string, std::string> options(const json& of, const std::string& where) const {
    std::map<std::string, std::string> all;
    for (const auto& [option, value] : member(of, "options", where, json::value_t::object).items())
      all[option] = text(value, where + ", " + printable(option));
    return all;
  }
  TrainingRecord training(const json& of) const {
    return {number(of.is_object() ? of.value("step", json()) : json(), "training, step"),
            options(of, "training")};
  }
  /// Older manifests have the network's options among those of the training. A mixture that names no number of
  /// experts for each token has one.
  static NetworkRecord take_network(const std::string& workload, TrainingRecord& training) {
    const std::set<std::string> others = {"--batch",  "--clip-norm",    "--data",   "--learning-rate",
                                          "--length", "--optimizer",    "--pieces", "--precision",
                                          "--seed",   "--source-length"};
    NetworkRecord network{workload, {}};
    for (const auto& [option, value] : training.options)
      if (!others.contains(option)) network.options[option] = value;
    for (const auto& [option, value] : network.options) training.options.erase(option);
    if (workload == "mixture") network.options.try_emplace("--top-k", "1");
    return network;
  }

  std::string path_;
};

}  // namespace

bool has_manifest(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder + '/' + Manifest::file_name, ignored);
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  return ManifestReader(path).read(parse_json_object(text, path));
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + '/' + Manifest::file_name;
  return ManifestReader(path).read(read_json_object(path));
}

std::string manifest_text(const Manifest& manifest) {
  nlohmann::ordered_json all = {{"format", manifest.format}};
  if (manifest.network)
    all["network"] = {{"workload", manifest.network->workload}, {"options", manifest.network->options}};
  if (manifest.training)
    all["training"] = {{"step", manifest.training->step}, {"options", manifest.training->options}};
  all["digests"] = manifest.digests;
  for (const auto& [name, tensor] : manifest.tensors) {
    auto parts = nlohmann::ordered_json::array();
    for (const StoredPart& part : tensor.parts)
      parts.push_back({{"file", part.file}, {"ranges", to_json(part.ranges)}});
    all["tensors"][name] = {{"shape", tensor.shape}, {"parts", parts}};
  }
  return all.dump(1) + '\n';
}

std::string why_no_tiling(const Shape& whole, const std::vector<Ranges>& parts) {
  Index elements = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!fits(parts[i], whole)) return "the part " + to_string(parts[i]);
    elements += num_elements(shape_of(parts[i]));
    for (std::size_t j = 0; j < i; ++j)
      if (do_overlap(parts[i], parts[j]))
        return fmt::format("{} and {}, which overlap", to_string(parts[j]), to_string(parts[i]));
  }
  if (elements == num_elements(whole)) return "";
  return fmt::format("{} of {} elements", elements, num_elements(whole));
}

}  // namespace shard
