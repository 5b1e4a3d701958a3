#pragma once

#include <string>

#include "engine/files/regular_file.hpp"

namespace shard {

/// Files of a folder that are replaced together. They are written into a new folder beside it,
/// `.shardbook-….tmp`. On commit(), this takes the folder's place in one step, with all the other files that
/// the old one has, its owner and its mode. Whoever opens `path`, also after a crash or a loss of power, finds
/// the old files or the new ones, all of them. A run that is killed leaves its new folder, and the next one
/// that replaces the same folder removes it: while a run lives, it has its new folder locked (flock).
class FolderReplacement {
 public:
  /// \throws Error file when `path` is there and is no folder, when it ends in no name of its own ("..", say),
  /// or when no folder can be made beside it
  explicit FolderReplacement(const std::string& path);
  FolderReplacement(const FolderReplacement&) = delete;
  FolderReplacement& operator=(const FolderReplacement&) = delete;
  /// Without commit(), the new folder vanishes.
  ~FolderReplacement();

  /// Where to write the new files.
  const std::string& folder() const { return folder_; }
  /// Links or copies files of another folder into the new one: those for which `is_ours` is false, and which
  /// the new one does not have. \throws Error file
  void keep_others(const std::string& from, bool (*is_ours)(const std::string& name)) const;
  /// Puts the new folder in its place. Files of the old one for which `is_ours` is false are kept: the new
  /// one gets links to them. \throws Error file
  void commit(bool (*is_ours)(const std::string& name));

 private:
  std::string path_;
  std::string parent_;
  std::string folder_;
  FileDescriptor lock_;
};

}  // namespace shard
