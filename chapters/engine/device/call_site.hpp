#pragma once

/// The line of source that made the current call. Errors name it.
///
/// A public function takes `SourceLine where = SourceLine::current()` as its last parameter, and begins with
/// `const CallSite call(where);`. Its errors then name the caller's line.

#include <string>

namespace shard {

/// A line of a source file. It replaces std::source_location, which clang 14 and nvcc do not have.
class SourceLine {
 public:
  /// No line.
  constexpr SourceLine() = default;
  /// The line of the call, when used as a default argument.
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

/// "chapters/02_data_parallel/data_parallel.hpp:41": the path begins at its last folder `chapters` or `tests`,
/// if it has one. Empty for no line.
std::string to_string(SourceLine where);

/// During its lifetime, errors name this line. In nested calls the line of the outermost one stays.
/// A local variable of a plain function, not of a coroutine.
class CallSite {
 public:
  explicit CallSite(SourceLine where) noexcept;
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  /// During its lifetime, errors name this line even within another call: an earlier asynchronous call continues.
  class Resumed {
   public:
    explicit Resumed(SourceLine earlier) noexcept;
    ~Resumed();
    Resumed(const Resumed&) = delete;
    Resumed& operator=(const Resumed&) = delete;

   private:
    SourceLine outer_;
  };

 private:
  SourceLine outer_;
};

/// The line of the outermost current call; none outside of all calls.
SourceLine current_call_site();

}  // namespace shard
