#include "engine/device/runtime/watchdog/control_plane.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "engine/device/device.hpp"
#include "engine/device/runtime/watchdog/message_counts.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

constexpr std::size_t groups_remembered = 256;

/// The bytes of a control character at the beginning, or 0: one of ASCII's (a newline is allowed), or, in
/// UTF-8, one that changes the direction of text (U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069).
std::size_t control_bytes(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return 1;
  const std::string_view three = text.substr(0, 3);
  const bool is_bidi = three == "\u200e" || three == "\u200f" || (three >= "\u202a" && three <= "\u202e") ||
                       (three >= "\u2066" && three <= "\u2069");
  return is_bidi ? 3 : 0;
}

}  // namespace

void print_error(const std::string& line) {
  constexpr std::size_t longest = 1 << 16;
  constexpr const char* erase_line = "\r\033[K";
  std::string text = "error: ";
  for (std::string_view rest = std::string_view(line).substr(0, longest); !rest.empty();) {
    const std::size_t escaped = control_bytes(rest);
    for (const char c : rest.substr(0, escaped))
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    if (escaped == 0) text += rest[0];
    rest.remove_prefix(std::max(escaped, std::size_t{1}));
  }
  if (line.size() > longest) text += "...";
  text += '\n';
  if (isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1) text.insert(0, erase_line);  // of progress
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void throw_deadlock(const std::string& line) {
  MessageCounts::instance().forget();
  throw Error(Code::deadlock, line);
}

ControlPlane& ControlPlane::instance() {
  return device().part<ControlPlane>();
}

void ControlPlane::connect_stream(std::function<void()> advance, decltype(in_flight_) in_flight,
                                  std::function<Index()> calls) {
  advance_ = std::move(advance);
  in_flight_ = std::move(in_flight);
  calls_ = std::move(calls);
}

void ControlPlane::wait_for(const std::string& what,
                            const std::function<Blocked::Dependencies()>& dependencies,
                            const std::function<bool()>& is_done) {
  const SourceLine where = current_call_site();
  auto describe = [&] {
    Blocked blocked;
    blocked.call = what;
    blocked.place =
        is_at_end_ ? fmt::format("after {} calls", calls_()) : place_of_call(calls_(), where, false);
    blocked.any_of = {dependencies()};
    blocked.in_flight = in_flight_();
    blocked.is_at_end = is_at_end_;
    return blocked;
  };
  for (Wait wait; !is_done(); wait.idle(describe)) advance_();
}

DeviceState ControlPlane::my_state(Blocked blocked) const {
  DeviceState state{std::move(blocked), removed_, calls_()};
  for (const auto& [group, counts] : posted_) state.posted[group] = *counts;
  return state;
}

void ControlPlane::remove(Index group) {
  removed_[group] = *posted_.at(group);
  posted_.erase(group);
  if (removed_.size() > groups_remembered) removed_.erase(removed_.begin());
}

}  // namespace shard::runtime
