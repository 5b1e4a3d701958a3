#include "engine/files/folder_replacement.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <random>

#include "engine/files/regular_file.hpp"

namespace shard {

namespace fs = std::filesystem;

namespace {

constexpr const char* temporary = ".shardbook-";  // prefix of the names of new folders

/// Writes a folder's names to the disk. Some file systems do not synchronise folders, and return EINVAL.
void synchronise(const std::string& folder) {
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 || (::fsync(opened.get()) != 0 && errno != EINVAL))
    system_error(folder, "cannot write the folder to the disk");
}

/// The lock of a folder. None if another run holds it, or if the folder is gone or was replaced.
FileDescriptor locked(const std::string& folder) {
  FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat mine = {}, now = {};
  const bool is_mine = opened.get() >= 0 && ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0 &&
                       ::fstat(opened.get(), &mine) == 0 && ::stat(folder.c_str(), &now) == 0 &&
                       mine.st_ino == now.st_ino && mine.st_dev == now.st_dev;
  return is_mine ? std::move(opened) : FileDescriptor();
}

/// Removes the new folders that killed runs have left for the same target. Their names are never used again,
/// so a folder with such a name and without a lock is left over.
void remove_left_over(const std::string& parent, const std::string& prefix) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const FileDescriptor lock = locked(entry.path());
    if (lock.get() >= 0) fs::remove_all(entry.path(), ignored);
  }
}

/// Gives `to` the owner and the mode of the folder `from`, as far as this process may.
void take_over_rights(const std::string& from, const std::string& to) {
  struct stat status {};
  if (::stat(from.c_str(), &status) != 0) return;
  [[maybe_unused]] bool may_be_refused = ::chown(to.c_str(), -1, status.st_gid) != 0;
  may_be_refused = ::chown(to.c_str(), status.st_uid, -1) != 0;
  ::chmod(to.c_str(), status.st_mode & 07777);
}

/// Recreates `old` as `kept`: hard links to files, and new folders that contain such links.
void keep(const std::string& old, const std::string& kept) {
  if (fs::path(old).filename().string().starts_with(temporary)) return;  // for example the new folder itself
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(old, error))) {
    if (::linkat(AT_FDCWD, old.c_str(), AT_FDCWD, kept.c_str(), 0) != 0)
      fs::copy(old, kept, fs::copy_options::copy_symlinks, error);  // the file system has no hard links
    if (error) system_error(old, "cannot keep this file", error.value());
    return;
  }
  if (!fs::create_directory(kept, error)) system_error(old, "cannot keep this folder", error.value());
  for (const std::string& name : names_in(old)) keep(old + '/' + name, kept + '/' + name);
  synchronise(kept);
  take_over_rights(old, kept);
  fs::last_write_time(kept, fs::last_write_time(old, error), error);
}

}  // namespace

FolderReplacement::FolderReplacement(const std::string& path) : path_(path) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  const std::string name = fs::path(path_).filename();
  if (name.empty() || name == "." || name == "..")
    bad_file(path_, "cannot replace", "a path that ends in the folder's own name",
             path_.empty() ? "nothing" : path_);
  std::error_code ignored;
  const bool replaces = has_name(path_);
  if (replaces && (!fs::is_directory(path_, ignored) || fs::is_symlink(path_, ignored)))
    bad_file(path_, "cannot replace", "a folder or none", "a file, or a link");
  parent_ = fs::path(path_).parent_path();
  if (parent_.empty()) parent_ = ".";
  const std::string prefix = fmt::format("{}{:x}-", temporary, std::hash<std::string>()(name));
  remove_left_over(parent_, prefix);
  std::random_device random;
  for (int attempt = 0; attempt < 100 && lock_.get() < 0; ++attempt) {
    folder_ = fmt::format("{}/{}{:x}-{:x}.tmp", parent_, prefix, random(), random());
    if (::mkdir(folder_.c_str(), replaces ? 0700 : 0777) != 0) break;
    errno = 0;
    lock_ = locked(folder_);
    if (lock_.get() >= 0) break;
    const int why = errno;
    ::rmdir(folder_.c_str());
    errno = why;
    const bool is_taken = why == EWOULDBLOCK || why == ENOENT || why == 0;  // by another run, as left over
    if (!is_taken) break;
  }
  if (lock_.get() < 0) system_error(path_, "cannot make a folder beside it");
}

FolderReplacement::~FolderReplacement() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

void FolderReplacement::keep_others(const std::string& from, bool (*is_ours)(const std::string& name)) const {
  std::error_code ignored;
  for (const std::string& name : names_in(from)) {
    const std::string old = from + '/' + name, kept = folder_ + '/' + name;
    std::error_code ignored;
    if (!is_ours(name) && !has_name(kept) && !fs::equivalent(old, path_, ignored)) keep(old, kept);
  }
}

void FolderReplacement::commit(bool (*is_ours)(const std::string& name)) {
  bool replaces = has_name(path_);
  const auto take_place = [&] {
    if (replaces) {
      keep_others(path_, is_ours);
      take_over_rights(path_, folder_);
    }
    synchronise(folder_);
    return ::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, path_.c_str(),
                       replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE) == 0;
  };
  bool done = take_place();
  if (!done && errno == EEXIST) {  // another run has just created it
    replaces = true;
    done = take_place();
  }
  if (!done) system_error(path_, "cannot put the new folder in place");
  synchronise(parent_);
  if (!replaces) folder_.clear();  // otherwise this is now the old folder, which is removed
}

}  // namespace shard
