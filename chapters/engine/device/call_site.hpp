#pragma once

/// The line of the source that made the call that runs now. Errors name it.
///
/// A function that a reader calls takes `SourceLine where = SourceLine::current()` as its last parameter, and
/// begins with `const CallSite call(where);`. So its errors name the reader's line, and nobody has to type
/// it.

#include <string>

namespace shard {

/// A line of a source file: std::source_location, which clang 14 and nvcc do not know.
class SourceLine {
 public:
  /// No line.
  constexpr SourceLine() = default;
  /// As a default argument: the line of the call.
  static constexpr SourceLine current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return SourceLine(file, line);
  }

  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }
  constexpr bool is_known() const { return line_ != 0; }

 private:
  constexpr SourceLine(const char* file, unsigned line) : file_(file), line_(line) {}

  const char* file_ = "";
  unsigned line_ = 0;
};

/// "chapters/02_data_parallel/data_parallel.hpp:41": the path from the last folder `chapters` or `tests` on,
/// or the whole path where there is none. Empty for no line.
std::string to_string(SourceLine where);

/// While it lives, errors name this line. A call within a call keeps the outer line: that is the reader's.
/// A local variable of a plain function, not of a coroutine.
class CallSite {
 public:
  explicit CallSite(SourceLine where) noexcept;
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  /// While it lives, an earlier call goes on within a later one: errors name the earlier one's line.
  class Resumed;

 private:
  SourceLine outer_;
};

class CallSite::Resumed {
 public:
  explicit Resumed(SourceLine earlier) noexcept;
  ~Resumed();
  Resumed(const Resumed&) = delete;
  Resumed& operator=(const Resumed&) = delete;

 private:
  SourceLine outer_;
};

/// The line of the outermost call that runs now; none outside of all calls.
SourceLine current_call_site();

}  // namespace shard
