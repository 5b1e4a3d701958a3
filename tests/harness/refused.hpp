#pragma once

/// Calls that must be refused: with which code, in which words, and at which line of the source.

#include <fmt/format.h>

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

/// Checks that an action ends in an error with this code and these words.
inline void check_refused(const std::function<void()>& action, const std::string& words,
                          Code code = Code::argument) {
  const Refusal given = refusal(action);
  CHECK(given.code == static_cast<int>(code));
  CHECK_THAT(given.message, contains(words));
}

/// The same of a wrong argument: one line, which names this device and the line of the call.
inline void check_refused_at(SourceLine where, const std::string& words, const std::function<void()>& call) {
  const std::string at = ", at " + to_string(where);
  CAPTURE(at, words);
  const Refusal given = refusal(call);
  CHECK(given.code == static_cast<int>(Code::argument));
  CHECK_THAT(given.message, contains(fmt::format("device {}: ", this_device())));
  CHECK_THAT(given.message, contains(words));
  CHECK_THAT(given.message, !contains("\n"));
  CHECK(given.message.ends_with(at));
  CHECK(!current_call_site().is_known());
}
/// Checks that the call behind the words is refused, with these words and at this line.
#define REFUSED(words, ...) \
  ::shard::testing::check_refused_at(::shard::SourceLine::current(), words, [&] { __VA_ARGS__; })

}  // namespace shard::testing
