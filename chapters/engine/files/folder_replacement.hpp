#pragma once

#include <string>

#include "engine/files/regular_file.hpp"

namespace shard {

/// Replaces files of a folder together. They are written into a new folder beside it, `.shardbook-….tmp`.
/// commit() adds all other files of the old folder, gives the new one the old one's owner and mode, and
/// exchanges the two in one step. So a reader of `path` finds either the old files or the new ones, also
/// after a crash or a loss of power. A run locks its new folder (flock). If the run is killed, the next run
/// that replaces the same folder removes it.
class FolderReplacement {
 public:
  /// \throws Error file when `path` exists and is no folder, when it does not end in a name (".." for
  /// example), or when no folder can be made beside it
  explicit FolderReplacement(const std::string& path);
  FolderReplacement(const FolderReplacement&) = delete;
  FolderReplacement& operator=(const FolderReplacement&) = delete;
  /// Removes the new folder, unless commit() was called.
  ~FolderReplacement();

  /// The folder for the new files.
  const std::string& folder() const { return folder_; }
  /// Links or copies files of another folder into the new one, if `is_ours` is false for them and the new
  /// folder does not have them. \throws Error file
  void keep_others(const std::string& from, bool (*is_ours)(const std::string& name)) const;
  /// Puts the new folder in its place. It gets links to those files of the old folder for which `is_ours` is
  /// false. \throws Error file
  void commit(bool (*is_ours)(const std::string& name));

 private:
  std::string path_;
  std::string parent_;
  std::string folder_;
  FileDescriptor lock_;
};

}  // namespace shard
