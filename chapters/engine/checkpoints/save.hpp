#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoints/manifest.hpp"
#include "engine/checkpoints/writing_plan.hpp"
#include "engine/weights/foreign_model.hpp"

namespace shard {

/// The format of a checkpoint's files.
struct SaveForm {
  /// "gathered": device 0 writes one file. "sharded": device 0 writes files of at most `most_bytes` bytes by
  /// the rules of split.hpp, and an index. "distributed": each device writes a file, all at the same time.
  std::string format = "sharded";
  std::uint64_t most_bytes = 5'000'000'000;
};

/// Tensors that are saved together.
struct SavedTensors {
  std::string stem;                ///< of the file names: "model" or "optimizer"
  std::vector<Trainable> held;     ///< the parts that this device holds
  std::vector<std::string> order;  ///< the names, in the order in which files are filled
  ForeignNames stored_as = {};     ///< names in the files that differ (not in "distributed")
  /// Element types by the names in the files, in the spelling of safetensors; F32 for the other tensors.
  std::map<std::string, std::string> types = {};
};

/// Saves tensors in a folder in one step, as FolderReplacement does: the folder keeps its old checkpoint
/// until the new one is complete, and keeps its other files. If parameters come from another folder,
/// `beside`, that folder's other files, such as config.json, are added. A collective. \throws Error file when
/// something cannot be written
void save_checkpoint(Communicator& group, const std::string& path, const SaveForm& form,
                     const std::vector<SavedTensors>& all, const Records& records,
                     const std::string& beside = "");

}  // namespace shard
