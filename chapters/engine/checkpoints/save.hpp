#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoints/manifest.hpp"
#include "engine/checkpoints/writing_plan.hpp"
#include "engine/foreign_model.hpp"

namespace shard {

/// How a checkpoint lies in its folder.
struct SaveForm {
  /// "gathered": device 0 writes one file. "sharded": device 0 writes files of at most `most_bytes` each, by
  /// the rules of split.hpp, and their index. "distributed": each device writes a file, all at once.
  std::string format = "sharded";
  std::uint64_t most_bytes = 5'000'000'000;
};

/// Tensors that are saved together.
struct SavedTensors {
  std::string stem;                ///< of their files' names: "model" or "optimizer"
  std::vector<HeldPart> held;      ///< what this device holds of them
  std::vector<std::string> order;  ///< their names, in the order in which files are filled
  ForeignNames stored_as = {};     ///< where they have other names in the files (not in "distributed")
  /// Types of elements by those names, in the spelling of safetensors; F32 for others.
  std::map<std::string, std::string> types = {};
};

/// Saves tensors in a folder. Until all is written, the folder keeps what it had; then it has the new
/// checkpoint, as one step, and all files of its own that belong to none (FolderReplacement). If
/// parameters come from another folder, `beside`, its other files, such as config.json, come with them. A
/// collective. \throws Error file when something cannot be written
void save_checkpoint(Communicator& group, const std::string& path, const SaveForm& form,
                     const std::vector<SavedTensors>& all, const std::optional<TrainingRecord>& training,
                     const std::string& beside = "");

}  // namespace shard
