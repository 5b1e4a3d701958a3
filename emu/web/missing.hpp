#pragma once

/// What the libraries of Emscripten lack. The build includes it before each source.

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace std {

/// libc++ reads integers only.
template <class Number>
requires is_floating_point_v<Number> from_chars_result from_chars(const char* first, const char* last,
                                                                  Number& value) {
  const string text(first, last);
  if (text.empty() || text[0] == '+' || isspace(static_cast<unsigned char>(text[0])))
    return {first, errc::invalid_argument};
  char* end = nullptr;
  const Number read =
      is_same_v<Number, float> ? strtof(text.c_str(), &end) : static_cast<Number>(strtod(text.c_str(), &end));
  if (end == text.c_str()) return {first, errc::invalid_argument};
  value = read;
  return {first + (end - text.c_str()), errc()};
}

}  // namespace std

/// A file system in memory exchanges no folders.
enum { RENAME_NOREPLACE = 1, RENAME_EXCHANGE = 2 };
inline int renameat2(int, const char* from, int, const char* to, unsigned) {
  return rename(from, to);
}

/// xxHash 0.8.3 takes Emscripten's <arm_neon.h> where it finds it, which lacks a file in Debian 13.
#define XXH_HAS_INCLUDE(header) 0
