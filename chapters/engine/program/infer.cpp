#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "engine/layers/tokens.hpp"
#include "engine/printable.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/parameters.hpp"

namespace shard {

namespace {

/// Reads and writes rows of numbers: each line is a row, with commas between the numbers.
class CsvInput : public InputStream {
 public:
  /// Without a width, that of the first row. `hint`: about a row of this width, which is not the network's.
  CsvInput(std::istream& in, std::optional<Index> width, Index rows_at_a_time,
           std::function<std::string(Index)> hint)
      : in_(in), hint_(std::move(hint)), width_(width), rows_(rows_at_a_time) {}

  std::optional<Tensor> next() override {
    std::vector<float> values;
    std::string line;
    Index rows = 0;
    while (rows < rows_ && std::getline(in_, line)) {
      ++line_;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      parse(line, values);
      ++rows;
    }
    if (rows == 0) return std::nullopt;
    return Tensor::from_host({rows, *width_}, values);
  }

 private:
  void parse(const std::string& line, std::vector<float>& values) {
    const char* at = line.data();
    const char* end = at + line.size();
    Index count = 0;
    for (; at != end; ++count) {
      float value = 0;
      auto [stop, error] = std::from_chars(at, end, value);
      auto given = [&] { return fmt::format("'{}'", printable({at, end}, 20)); };
      if (error == std::errc::result_out_of_range)  // infinity where it is too large for float32, else 0
        value = std::strtof(std::string(at, stop).c_str(), nullptr);
      else if (error != std::errc())
        complain(Code::file, "numbers separated by commas", given());
      if (stop != end && (*stop != ',' || stop + 1 == end))
        complain(Code::file, "numbers separated by commas", given());
      if (!std::isfinite(value)) complain(Code::not_finite, "numbers that are finite in float32", given());
      values.push_back(value);
      at = stop == end ? end : stop + 1;
    }
    if (!width_ && count > 0) width_ = count;
    if (count == width_) return;
    const std::string hint = hint_(count);
    complain(Code::file, width_ ? fmt::format("{} numbers", *width_) : "numbers",
             fmt::format("{}{}", count, hint.empty() ? "" : fmt::format(" ({})", hint)));
  }

  [[noreturn]] void complain(Code code, const std::string& expected, const std::string& given) const {
    throw Error(code, fmt::format("standard input: line {}: expected {}, given {}", line_, expected, given));
  }

  std::istream& in_;
  std::function<std::string(Index)> hint_;
  std::optional<Index> width_;
  Index rows_;
  Index line_ = 0;
};

class CsvOutput : public OutputStream {
 public:
  void write(const Tensor& rows) override { write(rows.to_host(), rows.extent(1)); }

 protected:
  static void write(const std::vector<float>& values, Index width) {
    fmt::memory_buffer text;
    for (std::size_t i = 0; i < values.size(); ++i)
      fmt::format_to(std::back_inserter(text), "{}{}", values[i],
                     (i + 1) % static_cast<std::size_t>(width) == 0 ? '\n' : ',');
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      throw Error(Code::file, "standard output: expected to write the results, given an error of the system");
  }
};

/// Reads sequences of tokens for a language model, one a line, all of one length. A token's label is the token
/// behind it.
class TokenInput : public InputStream {
 public:
  TokenInput(std::istream& in, Index sequences_at_a_time, const Workload& network)
      : rows_(in, std::nullopt, sequences_at_a_time, [](Index) { return ""; }), network_(network) {}

  std::optional<Tensor> next() override {
    const std::optional<Tensor> ids = rows_.next();
    if (!ids) return std::nullopt;
    length_ = ids->extent(1);
    const std::vector<float> numbers = ids->to_host();
    std::vector<float> input;
    for (auto row = numbers.begin(); row != numbers.end(); row += length_) {
      require_sequence({row, row + length_});
      input.insert(input.end(), row, row + length_);
      input.insert(input.end(), row + 1, row + length_);
      input.push_back(static_cast<float>(Tokens::no_label));
    }
    return Tensor::from_host({ids->extent(0), 2 * length_}, input);
  }
  Index length() const { return length_; }

 private:
  void require_sequence(const std::vector<float>& numbers) {
    ++line_;
    if (numbers.size() < 2)
      throw Error(Code::file, fmt::format("standard input: line {}: expected two tokens or more, given {}",
                                          line_, numbers.size()));
    std::vector<Index> tokens;
    for (float number : numbers) {
      tokens.push_back(static_cast<Index>(number));
      if (static_cast<float>(tokens.back()) != number)
        throw Error(Code::file,
                    fmt::format("standard input: line {}: expected tokens, given {}", line_, number));
    }
    if (const std::string why = network_.why_no_sequence(tokens, 0); !why.empty())
      throw Error(Code::file, fmt::format("standard input: line {}: {}", line_, why));
  }

  CsvInput rows_;
  const Workload& network_;
  Index length_ = 0;
  Index line_ = 0;
};

/// Writes the losses of each sequence's tokens but the first, one sequence a line.
class LossOutput : public CsvOutput {
 public:
  explicit LossOutput(const TokenInput& input) : input_(input) {}

  void write(const Tensor& losses) override {
    std::vector<float> of_labels;
    const std::vector<float> all = losses.to_host();
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((i + 1) % static_cast<std::size_t>(input_.length()) != 0) of_labels.push_back(all[i]);
    CsvOutput::write(of_labels, input_.length() - 1);
  }

 private:
  const TokenInput& input_;
};

}  // namespace

int infer(Communicator& group, const Variant& variant, const Arguments& arguments) {
  if (!variant.workload->can_infer())
    throw Error(Code::usage,
                fmt::format("infer: expected a variant that reads one input a line, given {}", variant.name));
  const Parameters params = open_parameters(*variant.workload, arguments);
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload, arguments.options);
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  engine->load_checkpoint(*params.checkpoint);
  if (network->kind().has_tokens()) {
    TokenInput input(std::cin, arguments.batch, *network);
    LossOutput output(input);
    engine->inference_loop(input, output);
  } else {
    CsvInput input(std::cin, network->input_shape(1).at(1), arguments.batch,
                   [&](Index width) { return params.input_hint(*network, width); });
    CsvOutput output;
    engine->inference_loop(input, output);
  }
  if (group.device_id() == 0 && std::ferror(stdin) != 0)
    throw Error(Code::file, "standard input: expected rows of numbers, given an error of the system");
  return 0;
}

}  // namespace shard
