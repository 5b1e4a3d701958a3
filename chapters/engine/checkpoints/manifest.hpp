#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/basics/ranges.hpp"

namespace shard {

/// A part of a tensor, and the file that has it under the tensor's name.
struct StoredPart {
  std::string file;
  Ranges ranges;
};

/// A tensor that is stored in parts, which tile it.
struct StoredParts {
  Shape shape;
  std::vector<StoredPart> parts;
};

/// The network whose parameters a checkpoint has.
struct NetworkRecord {
  std::string workload;                        ///< its kind: "mlp"
  std::map<std::string, std::string> options;  ///< that make it, by name: {"--layers", "2"}
};

/// The state of a training run, and the options to continue it, beside those of its network.
struct TrainingRecord {
  Index step = 0;                              ///< the last one made
  std::map<std::string, std::string> options;  ///< of the command line, by name: {"--batch", "64"}
};

/// What a checkpoint says beside its tensors.
struct Records {
  std::optional<NetworkRecord> network = {};    ///< nothing if other files say it, such as config.json
  std::optional<TrainingRecord> training = {};  ///< nothing if only parameters were saved
};

/// The content of `checkpoint.json`.
struct Manifest : Records {
  static constexpr const char* file_name = "checkpoint.json";

  std::string format;                          ///< "gathered", "sharded" or "distributed"
  std::map<std::string, std::string> digests;  ///< of each file, by file name (engine/files/regular_file.hpp)
  std::map<std::string, StoredParts> tensors;  ///< of the distributed format, by name
};

/// Whether a folder has a manifest.
bool has_manifest(const std::string& folder);
/// Parses a manifest; `path` is the file's name in messages. \throws Error file when it is malformed, when it
/// names a file outside the folder, or when the parts of a tensor do not tile it
Manifest parse_manifest(std::string_view text, const std::string& path);
/// Reads a folder's manifest. \throws Error file also when it cannot be read
Manifest read_manifest(const std::string& folder);
/// The text of the file.
std::string manifest_text(const Manifest& manifest);

/// Why parts do not tile a tensor, with each element in exactly one part; empty if they do.
std::string why_no_tiling(const Shape& whole, const std::vector<Ranges>& parts);

}  // namespace shard
