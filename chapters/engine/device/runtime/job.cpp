/// How a device begins and ends a job, with a result or with an error.

#include "engine/device/runtime/job.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "engine/device/runtime/backend.hpp"
#include "engine/device/runtime/meeting.hpp"
#include "engine/device/runtime/wait.hpp"
#include "engine/device/runtime/watchdog/message_counts.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {
namespace {

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

/// Call it at the end of the program. \throws Error mismatch, on device 0, when messages were not received
void require_all_received(Group& all) {
  MessageCounts& counts = MessageCounts::instance();
  const std::vector<Index> received = exchange_at_end(all, counts.received(all.num_devices()));
  Request request{.function = Request::gather, .what = "the messages that are left over"};
  request.text = counts.unreceived(received);
  std::string lines;
  for (const std::string& text : gather(all, request)) lines += text;
  if (!lines.empty()) throw Error(Code::mismatch, "messages were sent that nobody received:" + lines);
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

int run_in_world(const std::function<int(Communicator& world)>& body) {
  set_up_device();
  const std::shared_ptr<Group> all = Group::world();
  const std::unique_ptr<Communicator> world = make_communicator(all);
  const int exit_code = body(*world);
  if (exit_code < 0 || exit_code > 125)  // shells and launchers use the other codes
    refuse(Code::argument, "the program", "to return 0 to 125", fmt::to_string(exit_code));
  world->synchronize();
  std::fflush(stdout);
  const Index largest = max_at_end(*all, exit_code);
  Wait::end_search();
  if (largest == 0) require_all_received(*all);
  return static_cast<int>(largest);
}

int run_as_device(const std::function<int(Communicator& world)>& body) {
  try {
    const int exit_code = run_in_world(body);
    Job::finish(exit_code);
    return exit_code;
  } catch (const Error& error) {
    Job::fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    Job::fail(Code::missing, fmt::format("device {}: out of memory", this_device()));
  } catch (const std::exception& error) {
    const std::string what = error.what();
    Job::fail(Code::internal, fmt::format("device {}: {}", this_device(),
                                          what.empty() ? "an exception without a text" : what));
  } catch (...) {
    Job::fail(Code::internal, fmt::format("device {}: an exception of an unknown type", this_device()));
  }
}

}  // namespace shard::runtime
