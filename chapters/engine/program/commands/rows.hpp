#pragma once

/// Input and output of `infer`: standard input and standard output, one row in each line.

#include <functional>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

struct Streams {
  std::unique_ptr<InputStream> input;
  std::unique_ptr<OutputStream> output;
};

/// Reads and writes rows of numbers with commas between them. `at_a_time` rows go through the network
/// together. `hint`: see input_hint
Streams rows_of_numbers(std::istream& in, Index width, Index at_a_time, InputHint hint);
/// Reads sequences of tokens, all of one length, and writes the losses of each sequence's labels. A token's
/// label is the next token. An encoder-decoder reads "5,17,2|8,1": a source, and the labels of its target.
Streams rows_of_tokens(std::istream& in, const Workload& network, Index at_a_time);

}  // namespace shard
