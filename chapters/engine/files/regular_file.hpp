#pragma once

/// Regular files: opened to be read, and replaced as a whole. Pipes, devices and folders are refused: they
/// may block, have no end, or be lost by a rename. Messages are one line, and begin with the path.

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shard {

/// A file descriptor that closes itself. Movable; -1 stands for none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return fd_; }

 private:
  int fd_;
};

/// Whether there is something of this name, also a symbolic link to nothing: opening it says so.
bool has_name(const std::string& path);
/// The names in a folder, sorted. \throws Error file when it cannot be read
std::vector<std::string> names_in(const std::string& folder);
/// Opens `path` to be read, and gives its size. \throws Error file unless it is a regular file
FileDescriptor open_regular(const std::string& path, std::uint64_t& size);

/// Reads these bytes of a file. \throws Error file also when it has become shorter
void read_exactly(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                  std::uint64_t bytes, void* into);
/// Git LFS leaves a text, which begins in its own way, in the place of a file that has not been fetched.
/// \throws Error file when `beginning` is that of such a text
void refuse_git_lfs_pointer(const std::string& path, std::string_view beginning);

/// A file without a name in the folder of `path`. On commit() it gets one, `.shardbook-PID-N.tmp`, and takes
/// the place of `path`; without that it vanishes, also if this process is killed. Whoever opens `path`, also
/// after the machine lost power, finds the old file or the new one, whole. A symbolic link at `path` is
/// replaced, not followed. Where a file system has no files without a name, a killed run leaves its temporary.
class Replacement {
 public:
  /// \throws Error file when no file can be written there
  explicit Replacement(const std::string& path);
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement();

  /// Adds bytes at the end. \throws Error file
  void write(const void* data, std::uint64_t bytes);
  /// Puts the file in its place, and sees that it is on the disk. \throws Error file
  void commit();

 private:
  void refuse_special_target() const;
  /// Sets `temporary_` to the first name that the function can use.
  void with_free_name(const std::function<bool(const char*)>& try_name);

  std::string path_;
  std::string target_;     // the last part of the path
  std::string temporary_;  // empty where there is none
  FileDescriptor folder_;
  FileDescriptor file_;
};

/// Writes a whole file of this text, or none. \throws Error file
void replace_file(const std::string& path, std::string_view text);
/// For the beginning of a long run. \throws Error file when no file could be written there
void require_replaceable(const std::string& path);

/// Throws Error(Code::file, "PATH: WHAT, expected EXPECTED, given GIVEN").
[[noreturn]] void bad_file(const std::string& path, std::string_view what, std::string_view expected,
                           std::string_view given);
/// A call to the operating system went wrong: throws Error(Code::file, "PATH: WHAT: reason").
[[noreturn]] void system_error(const std::string& path, std::string_view what, int error = errno);

/// `path` without characters that would break a message's line.
std::string one_line(const std::string& path);

}  // namespace shard
