#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ranges.hpp"

namespace shard {

/// A part of a tensor, which a file has under the tensor's name.
struct StoredPart {
  std::string file;
  Ranges ranges;
};

/// A tensor in parts, which tile it.
struct StoredParts {
  Shape shape;
  std::vector<StoredPart> parts;
};

/// How far a training has come, and how it is to go on.
struct TrainingRecord {
  Index step = 0;                              ///< the last one that was made
  std::string workload;                        ///< the kind of network: "mlp"
  std::map<std::string, std::string> options;  ///< of the command line, by name: {"--batch", "64"}
};

/// What a checkpoint says of itself, in `checkpoint.json`.
struct Manifest {
  static constexpr const char* file_name = "checkpoint.json";

  std::string format;                          ///< "gathered", "sharded" or "distributed"
  std::map<std::string, std::string> digests;  ///< of each file, by its name (engine/files/digest.hpp)
  std::map<std::string, StoredParts> tensors;  ///< of the distributed format, by name
  std::optional<TrainingRecord> training;      ///< nothing where parameters were saved alone
};

/// Whether a folder has one.
bool has_manifest(const std::string& folder);
/// The manifest in a text; `path` is its file's, for messages. \throws Error file when it is malformed, when it
/// names a file outside the folder, or when the parts of a tensor do not tile it
Manifest parse_manifest(std::string_view text, const std::string& path);
/// The same of a folder's file. \throws Error file also when it cannot be read
Manifest read_manifest(const std::string& folder);
/// As a file has it.
std::string manifest_text(const Manifest& manifest);

/// Whether parts tile a tensor: each element is in one of them. Says what is wrong, or nothing.
std::string why_no_tiling(const Shape& whole, const std::vector<Ranges>& parts);

}  // namespace shard
