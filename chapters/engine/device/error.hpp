#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace shard {

/// The kind of an error. Its number is the exit code of the program.
enum class Code : int {
  usage = 64,        ///< unknown option, impossible combination
  file = 65,         ///< a checkpoint or data file: missing, unreadable, malformed, truncated
  missing = 69,      ///< something that this machine does not have, such as enough memory
  internal = 70,     ///< a mistake of this project, or an exception of another kind
  mismatch = 81,     ///< devices do not agree on a collective call
  deadlock = 82,     ///< every device waits for another
  lost = 83,         ///< a device was lost
  argument = 84,     ///< bad argument to a call: shape, axis, device id
  not_finite = 85,   ///< a NaN or an infinity where a number must be finite
  differs = 86,      ///< it ran, and differs from the reference
  interrupted = 130  ///< somebody ended it, by Ctrl-C or SIGTERM
};

/// The one exception of this project. Its message is one line that names what, where, expected and given.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message);

  Code code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }

 private:
  Code code_;
};

/// Adds a result that differs from its reference to what the launcher's --diagnosis writes.
void note_difference(const std::string& line);

/// The id in the job of the device that runs this code: 0 before a job begins.
int this_device();

/// "device 1: CALL: expected EXPECTED, given GIVEN, at FILE:LINE", where 1 is this_device() and the line is
/// that of the call that runs now (call_site.hpp).
std::string refusal_text(std::string_view call, std::string_view expected, std::string_view given);
/// A mistake in a call. \throws Error with the text of a refusal
[[noreturn]] void refuse(Code code, std::string_view call, std::string_view expected, std::string_view given);

}  // namespace shard
