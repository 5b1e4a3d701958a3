#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace shard {

/// The kind of an error. Its number is the exit code of the program.
enum class Code : int {
  usage = 64,        ///< unknown option, impossible combination
  file = 65,         ///< a checkpoint or data file: missing, unreadable, malformed, truncated
  missing = 69,      ///< this machine lacks something, such as memory
  internal = 70,     ///< a bug of this project, or an exception that is no Error
  mismatch = 81,     ///< devices do not agree on a collective call
  deadlock = 82,     ///< devices wait for one another and can never continue
  lost = 83,         ///< a device was lost
  argument = 84,     ///< bad argument to a call: shape, axis, device id
  not_finite = 85,   ///< a NaN or an infinity where a number must be finite
  differs = 86,      ///< the run succeeded, but its result differs from the reference
  interrupted = 130  ///< Ctrl-C or SIGTERM ended the program
};

/// The one exception of this project. Its message is one line that names what, where, expected and given.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message);
  /// The message is formatted, as by fmt::format.
  template <class First, class... More>
  Error(Code code, fmt::format_string<First, More...> message, First&& first, More&&... more)
      : Error(code, fmt::format(message, std::forward<First>(first), std::forward<More>(more)...)) {}

  Code code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }

 private:
  Code code_;
};

/// Adds a line about a result that differs from its reference to the file of the launcher's --diagnosis.
void note_difference(const std::string& line);

/// This device's id in the job; 0 before a job begins.
int this_device();

/// "device 1: CALL: expected EXPECTED, given GIVEN, at FILE:LINE", with this_device() and the line of the current
/// call (call_site.hpp).
std::string refusal_text(std::string_view call, std::string_view expected, std::string_view given);
/// Rejects a wrong call. \throws Error with this code and refusal_text
[[noreturn]] void refuse(Code code, std::string_view call, std::string_view expected, std::string_view given);

}  // namespace shard
