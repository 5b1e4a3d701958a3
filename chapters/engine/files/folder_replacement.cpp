#include "engine/files/folder_replacement.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <regex>

#include "engine/files/regular_file.hpp"

namespace shard {

namespace fs = std::filesystem;

namespace {

/// Sees that a folder's names are on the disk. Some file systems do not synchronise folders, and say EINVAL.
void synchronise(const std::string& folder) {
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 || (::fsync(opened.get()) != 0 && errno != EINVAL))
    system_error(folder, "cannot write the folder to the disk");
}

/// The lock of a folder; none where another run has it, or where the folder is gone or another one by now.
FileDescriptor locked(const std::string& folder) {
  FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat mine {
  }, now{};
  const bool is_mine = opened.get() >= 0 && ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0 &&
                       ::fstat(opened.get(), &mine) == 0 && ::stat(folder.c_str(), &now) == 0 &&
                       mine.st_ino == now.st_ino && mine.st_dev == now.st_dev;
  return is_mine ? std::move(opened) : FileDescriptor();
}

/// Removes what killed runs have left.
void remove_left_over(const std::string& parent) {
  static const std::regex ours("\\.shardbook-[0-9]+-[0-9]+\\.tmp");
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    if (!std::regex_match(entry.path().filename().string(), ours)) continue;
    const FileDescriptor lock = locked(entry.path());
    if (lock.get() >= 0) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

FolderReplacement::FolderReplacement(const std::string& path) : path_(path) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  std::error_code ignored;
  if (has_name(path_) && (!fs::is_directory(path_, ignored) || fs::is_symlink(path_, ignored)))
    bad_file(path_, "cannot replace", "a folder or none", "a file, or a link");
  parent_ = fs::path(path_).parent_path();
  if (parent_.empty()) parent_ = ".";
  remove_left_over(parent_);
  for (int attempt = 0; attempt < 1000 && folder_.empty(); ++attempt) {
    const std::string name = fmt::format("{}/.shardbook-{}-{}.tmp", parent_, ::getpid(), attempt);
    if (::mkdir(name.c_str(), 0777) != 0) {
      if (errno != EEXIST) break;
    } else if (lock_ = locked(name); lock_.get() >= 0) {
      folder_ = name;
    }
  }
  if (folder_.empty()) system_error(path_, "cannot make a folder beside it");
}

FolderReplacement::~FolderReplacement() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void FolderReplacement::keep_others(const std::string& from, bool (*is_ours)(const std::string& name)) const {
  for (const std::string& name : names_in(from)) {
    const std::string old = from + '/' + name, kept = folder_ + '/' + name;
    if (is_ours(name) || has_name(kept)) continue;
    std::error_code error;
    if (fs::is_directory(fs::symlink_status(old, error)))
      fs::copy(old, kept, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
    else if (::linkat(AT_FDCWD, old.c_str(), AT_FDCWD, kept.c_str(), 0) != 0)
      fs::copy(old, kept, fs::copy_options::copy_symlinks, error);
    if (error) system_error(old, "cannot keep this file", error.value());
  }
}

void FolderReplacement::commit(bool (*is_ours)(const std::string& name)) {
  const bool replaces = has_name(path_);
  if (replaces) keep_others(path_, is_ours);
  synchronise(folder_);
  if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, path_.c_str(),
                  replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE) != 0)
    system_error(path_, "cannot put the new folder in place");
  synchronise(parent_);
  if (!replaces) folder_.clear();  // otherwise it is the old one now, and vanishes
}

}  // namespace shard
