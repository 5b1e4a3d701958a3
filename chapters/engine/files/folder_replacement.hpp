#pragma once

#include <set>
#include <string>

namespace shard {

/// Files of a folder that are replaced together. They are written into a new folder beside it,
/// `.shardbook-PID-N.tmp`. On commit(), this takes the folder's place in one step, with all the other files
/// that the old one has. Whoever opens `path`, also after a crash or a loss of power, finds the old files or
/// the new ones, all of them.
class FolderReplacement {
 public:
  /// \throws Error file when `path` is there and is no folder, or when no folder can be made beside it
  explicit FolderReplacement(const std::string& path);
  FolderReplacement(const FolderReplacement&) = delete;
  FolderReplacement& operator=(const FolderReplacement&) = delete;
  /// Without commit(), the new folder vanishes.
  ~FolderReplacement();

  /// Where to write the new files.
  const std::string& folder() const { return folder_; }
  /// Puts the new folder in its place. Files of the old one for which `is_ours` is false are kept: the new
  /// one gets links to them. \throws Error file
  void commit(bool (*is_ours)(const std::string& name));

 private:
  void keep_others(bool (*is_ours)(const std::string& name)) const;

  std::string path_;
  std::string parent_;
  std::string folder_;
};

}  // namespace shard
