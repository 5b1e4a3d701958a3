#include "engine/device/runtime/watchdog/flight_record.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/device/error.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

template <std::size_t size>
void write_text(char (&field)[size], std::string_view text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(field, text.data(), length);
  std::memset(field + length, 0, size - length);
}

/// One write, so that lines of several devices do not mix.
void append_line(const std::string& path, const std::string& line) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  const std::string text = line + '\n';
  [[maybe_unused]] const ssize_t written = write(file, text.data(), text.size());
  close(file);
}

}  // namespace

FlightRecord& FlightRecord::instance() {
  return device().state<FlightRecord>();
}

void FlightRecord::begin(int device) {
  const char* folder = std::getenv("SHARDBOOK_RECORDS");
  if (folder == nullptr || access(folder, W_OK) != 0) return;
  folder_ = folder;
  const int file =
      open((folder_ + "/device_" + std::to_string(device)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (ftruncate(file, sizeof(Content)) == 0) {
    void* memory = mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) content_ = static_cast<Content*>(memory);
  }
  close(file);
  content_->process = getpid();
  note_state(State::runs);
}

void FlightRecord::note_call(std::int64_t number, std::string_view call, SourceLine where) {
  content_->calls = number;
  write_text(content_->call, call);
  write_text(content_->file, where.file_name());
  content_->line = where.line();
}

void FlightRecord::note_state(State state) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  content_->since = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  content_->state = static_cast<std::int64_t>(state);
}

void FlightRecord::note_end(int exit_code) {
  note_state(State::has_ended);
  if (!folder_.empty()) append_line(folder_ + "/exit_codes", std::to_string(exit_code));
}

FlightRecord::Printer FlightRecord::claim_printing() const {
  if (folder_.empty()) return Printer::unknown;
  const int file = open((folder_ + "/printer").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return errno == EEXIST ? Printer::another_device : Printer::unknown;
  close(file);
  return Printer::this_device;
}

void FlightRecord::leave_error(int code, const std::string& text) const {
  if (folder_.empty()) return;
  const std::string path = folder_ + "/last_words", part = path + ".part";
  append_line(part, std::to_string(code) + ' ' + text);
  std::rename(part.c_str(), path.c_str());  // atomic: the launcher reads all of it or nothing
}

void FlightRecord::note_difference(const std::string& line) const {
  if (!folder_.empty()) append_line(folder_ + "/differences", line);
}

}  // namespace shard::runtime
