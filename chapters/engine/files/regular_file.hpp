#pragma once

/// Regular files: opened for reading, and replaced as a whole. Pipes, devices and folders are refused: they
/// may block, have no end, or be lost by a rename. Messages are one line, and begin with the path.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

/// Whether this name exists, also as a symbolic link to nothing (opening it then fails).
bool has_name(const std::string& path);
/// The names in a folder, sorted. \throws Error file when it cannot be read
std::vector<std::string> names_in(const std::string& folder);
/// Opens `path` for reading, and returns its size in bytes. \throws Error file unless it is a regular file
FileDescriptor open_regular(const std::string& path, std::uint64_t& size);

/// Reads `bytes` bytes at `offset`. \throws Error file, also when the file has become shorter
void read_exactly(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                  std::uint64_t bytes, void* into);
/// Git LFS writes a short text in the place of a file that has not been fetched. \throws Error file when a
/// file with this beginning is such a text
void refuse_git_lfs_pointer(const std::string& path, std::string_view beginning);

/// A file without a name in the folder of `path`. commit() gives it a name, `.shardbook-PID-N.tmp`, and
/// renames it to `path`. Without commit() it is removed, also if this process is killed. A reader of `path`
/// finds the whole old file or the whole new one, also after a loss of power. A symbolic link at `path` is
/// replaced, not followed. On a file system without unnamed files, a killed run leaves its temporary file.
class Replacement {
 public:
  /// \throws Error file when no file can be written beside `path`
  explicit Replacement(const std::string& path);
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement();

  /// Appends bytes. \throws Error file
  void write(const void* data, std::uint64_t bytes);
  /// Renames the file to its path, and waits until it is on the disk. \throws Error file
  void commit();

 private:
  void refuse_special_target() const;
  /// Sets `temporary_` to the first name for which the function returns true.
  void with_free_name(const std::function<bool(const char*)>& try_name);

  std::string path_;
  std::string target_;     // the last part of the path
  std::string temporary_;  // empty: no temporary file
  FileDescriptor folder_;
  FileDescriptor file_;
};

/// Writes this text as a whole file, or nothing. \throws Error file
void replace_file(const std::string& path, std::string_view text);
/// Checks, before a long run, that `path` can be replaced. \throws Error file
void require_replaceable(const std::string& path);

/// Throws Error(Code::file, "PATH: WHAT, expected EXPECTED, given GIVEN").
[[noreturn]] void bad_file(const std::string& path, std::string_view what, std::string_view expected,
                           std::string_view given);
/// Reports a failed call to the operating system: throws Error(Code::file, "PATH: WHAT: reason").
[[noreturn]] void system_error(const std::string& path, std::string_view what, int error = errno);

/// `path` without characters that would break a line.
std::string one_line(const std::string& path);

/// A digest of bytes that are added one after the other: XXH3 of 128 bits (https://xxhash.com). It finds
/// damage. It does not protect against deliberate changes. `xxh128sum FILE` prints the same for a file.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(const void* data, std::size_t bytes);
  /// The digest of all bytes so far: 32 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The digest of a whole file, which is read in pieces. \throws Error file when it cannot be read
std::string digest_of_file(const std::string& path);

}  // namespace shard
