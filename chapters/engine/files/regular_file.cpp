#include "engine/files/regular_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/basics/printable.hpp"
#include "engine/basics/ranges.hpp"
#include "engine/device/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace shard {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

bool has_name(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

std::vector<std::string> names_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    names.push_back(entry->path().filename());
  if (error) system_error(folder, "cannot list", error.value());
  std::ranges::sort(names);
  return names;
}

namespace {

/// Raises this process's limit of open files to the maximum, since a network may have thousands of files.
/// Returns whether the limit has grown.
bool allow_more_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace

FileDescriptor open_regular(const std::string& path, std::uint64_t& size) {
  auto open = [&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); };
  FileDescriptor file(open());
  if (file.get() < 0 && errno == EMFILE && allow_more_files()) file = FileDescriptor(open());
  if (file.get() < 0) system_error(path, "cannot open");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) system_error(path, "cannot inspect");
  if (!S_ISREG(status.st_mode))
    bad_file(path, "not a file of bytes", "a regular file", "a folder, a pipe or a device");
  size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

void read_exactly(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                  std::uint64_t bytes, void* into) {
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(file.get(), static_cast<std::byte*>(into) + done, bytes - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_error(path, "cannot read");
    if (got == 0)
      bad_file(path, "the file shrank while it was read", fmt::format("{} bytes at byte {}", bytes, offset),
               fmt::format("{} bytes", done));
    done += static_cast<std::uint64_t>(got);
  }
}

void refuse_git_lfs_pointer(const std::string& path, std::string_view beginning) {
  if (beginning.starts_with("version https://git-lfs.github.com/spec/"))
    throw Error(Code::file, one_line(path) + ": a Git LFS pointer, not the file itself: git lfs pull");
}

Replacement::Replacement(const std::string& path) : path_(path), target_(path.substr(path.rfind('/') + 1)) {
  const std::string folder = path.substr(0, path.size() - target_.size());
  folder_ = FileDescriptor(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_.get() < 0) system_error(path_, "cannot open the folder to write in");
  refuse_special_target();
  file_ = FileDescriptor(::openat(folder_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  if (file_.get() >= 0) return;
  with_free_name([&](const char* name) {  // the file system has no unnamed files
    file_ = FileDescriptor(::openat(folder_.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return file_.get() >= 0;
  });
  if (temporary_.empty()) system_error(path_, "cannot create a file in its folder");
}

Replacement::~Replacement() {
  if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
}

void Replacement::write(const void* data, std::uint64_t bytes) {
  std::uint64_t done = 0;
  while (done < bytes) {  // a write may be short: a signal, or the disk is nearly full
    const ssize_t now = ::write(file_.get(), static_cast<const std::byte*>(data) + done, bytes - done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) system_error(path_, "cannot write", now < 0 ? errno : ENOSPC);
    done += static_cast<std::uint64_t>(now);
  }
}

void Replacement::commit() {
  if (::fsync(file_.get()) != 0) system_error(path_, "cannot write to the disk");
  const std::string nameless = fmt::format("/proc/self/fd/{}", file_.get());
  if (temporary_.empty())
    with_free_name([&](const char* name) {
      return ::linkat(AT_FDCWD, nameless.c_str(), folder_.get(), name, AT_SYMLINK_FOLLOW) == 0;
    });
  if (temporary_.empty()) system_error(path_, "cannot name the new file");
  if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), target_.c_str()) != 0)
    system_error(path_, "cannot put the new file in place");
  temporary_.clear();
  // Some file systems do not synchronise folders, and return EINVAL.
  if (::fsync(folder_.get()) != 0 && errno != EINVAL)
    system_error(path_, "cannot write the folder to the disk");
}

/// A rename would replace a device such as /dev/null by a file.
void Replacement::refuse_special_target() const {
  struct stat status {};
  const bool exists = ::fstatat(folder_.get(), target_.c_str(), &status, 0) == 0;
  if (target_.empty() || (exists && !S_ISREG(status.st_mode)))
    bad_file(path_, "cannot replace", "a regular file or none", "a folder, a pipe or a device");
}

/// Skips names that a killed run has left.
void Replacement::with_free_name(const std::function<bool(const char*)>& try_name) {
  for (int attempt = 0; attempt < 1000 && temporary_.empty(); ++attempt) {
    const std::string name = fmt::format(".shardbook-{}-{}.tmp", ::getpid(), attempt);
    if (try_name(name.c_str())) temporary_ = name;
    if (temporary_.empty() && errno != EEXIST) return;
  }
}

void replace_file(const std::string& path, std::string_view text) {
  Replacement replacement(path);
  replacement.write(text.data(), text.size());
  replacement.commit();
}

void require_replaceable(const std::string& path) {
  const Replacement unused(path);
}

void bad_file(const std::string& path, std::string_view what, std::string_view expected,
              std::string_view given) {
  throw Error(Code::file, "{}: {}, expected {}, given {}", one_line(path), what, expected, given);
}

void system_error(const std::string& path, std::string_view what, int error) {
  throw Error(Code::file, "{}: {}: {}", one_line(path), what, std::generic_category().message(error));
}

std::string one_line(const std::string& path) {
  std::string result;
  for (const char c : path) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    result += control ? printable(std::string_view(&c, 1)) : std::string(1, c);
  }
  return result;
}

struct Digest::State {
  XXH3_state_t hash;
};

Digest::Digest() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->hash);
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(const void* data, std::size_t bytes) {
  XXH3_128bits_update(&state_->hash, data, bytes);
}

std::string Digest::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->hash);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string digest_of_file(const std::string& path) {
  std::uint64_t size = 0;
  const FileDescriptor file = open_regular(path, size);
  std::vector<std::byte> piece(std::min<std::uint64_t>(size, piece_bytes));
  Digest digest;
  for (std::uint64_t done = 0; done < size; done += piece.size()) {
    const std::uint64_t now = std::min<std::uint64_t>(piece.size(), size - done);
    read_exactly(file, path, done, now, piece.data());
    digest.add(piece.data(), now);
  }
  return digest.text();
}

}  // namespace shard
