#include "engine/program/commands/rows.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace shard {

bool InputLines::next(std::string& line) {
  if (!std::getline(in_, line)) return false;
  ++line_;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

void InputLines::complain(Code code, const std::string& what) const {
  throw Error(code, fmt::format("standard input: line {}: {}", line_, what));
}

void InputLines::complain(Code code, const std::string& expected, const std::string& given) const {
  complain(code, fmt::format("expected {}, given {}", expected, given));
}

void write_lines(const std::vector<float>& values, Index width) {
  fmt::memory_buffer text;
  for (std::size_t i = 0; i < values.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", values[i],
                   (i + 1) % static_cast<std::size_t>(width) == 0 ? '\n' : ',');
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error(Code::file, "standard output: expected to write the results, given an error of the system");
}

}  // namespace shard
