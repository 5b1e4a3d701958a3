#pragma once

/// What `infer` reads from standard input and writes to standard output: a row each line.

#include <functional>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "engine/sharded_engine.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

struct Streams {
  std::unique_ptr<InputStream> input;
  std::unique_ptr<OutputStream> output;
};

/// Rows of numbers in, with commas between them, and rows of numbers out. So many go through the network
/// together. `hint`: see input_hint.
Streams rows_of_numbers(std::istream& in, Index width, Index at_a_time, InputHint hint);
/// Sequences of tokens in, all of one length, and the losses of each sequence's labels out. A token's label
/// is the token behind it. An encoder-decoder reads "5,17,2|8,1": a source, and the labels of its target.
Streams rows_of_tokens(std::istream& in, const Workload& network, Index at_a_time);

/// The lines of standard input, which are counted for messages.
class InputLines {
 public:
  explicit InputLines(std::istream& in) : in_(in) {}

  /// The next line without its end; false behind the last one.
  bool next(std::string& line);
  [[noreturn]] void complain(Code code, const std::string& what) const;
  [[noreturn]] void complain(Code code, const std::string& expected, const std::string& given) const;

 private:
  std::istream& in_;
  Index line_ = 0;
};

/// Numbers as lines of this width, on standard output. \throws Error file
void write_lines(const std::vector<float>& values, Index width);

}  // namespace shard
