#include "engine/program/commands/rows.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/basics/printable.hpp"
#include "engine/layers/tokens/tokens.hpp"

namespace shard {

namespace {

/// The lines of standard input, counted for messages.
class InputLines {
 public:
  explicit InputLines(std::istream& in) : in_(in) {}

  /// Reads the next line, without its end. False at the end of the input.
  bool next(std::string& line) {
    if (!std::getline(in_, line)) return false;
    ++line_;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }
  [[noreturn]] void complain(Code code, const std::string& what) const {
    throw Error(code, "standard input: line {}: {}", line_, what);
  }
  [[noreturn]] void complain(Code code, const std::string& expected, const std::string& given) const {
    complain(code, fmt::format("expected {}, given {}", expected, given));
  }

 private:
  std::istream& in_;
  Index line_ = 0;
};

/// Writes numbers to standard output, this many in a line. \throws Error file
void write_lines(const std::vector<float>& values, Index width) {
  fmt::memory_buffer text;
  for (std::size_t i = 0; i < values.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", values[i],
                   (i + 1) % static_cast<std::size_t>(width) == 0 ? '\n' : ',');
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error(Code::file, "standard output: expected to write the results, given an error of the system");
}

class NumberInput : public InputStream {
 public:
  NumberInput(std::istream& in, Index width, Index at_a_time, InputHint hint)
      : lines_(in), hint_(std::move(hint)), width_(width), at_a_time_(at_a_time) {}

  std::optional<Tensor> next() override {
    std::vector<float> values;
    std::string line;
    Index rows = 0;
    for (; rows < at_a_time_ && lines_.next(line); ++rows) parse(line, values);
    if (rows == 0) return std::nullopt;
    return Tensor::from_host({rows, width_}, values);
  }

 private:
  void parse(const std::string& line, std::vector<float>& values) const {
    const char* at = line.data();
    const char* end = at + line.size();
    Index count = 0;
    for (; at != end; ++count) {
      float value = 0;
      auto [stop, error] = std::from_chars(at, end, value);
      auto given = [&] { return fmt::format("'{}'", printable({at, end}, 20)); };
      if (error == std::errc::result_out_of_range)  // too large for float32: infinity; too small: 0
        value = std::strtof(std::string(at, stop).c_str(), nullptr);
      else if (error != std::errc())
        lines_.complain(Code::file, "numbers separated by commas", given());
      if (stop != end && (*stop != ',' || stop + 1 == end))
        lines_.complain(Code::file, "numbers separated by commas", given());
      if (!std::isfinite(value))
        lines_.complain(Code::not_finite, "numbers that are finite in float32", given());
      values.push_back(value);
      at = stop == end ? end : stop + 1;
    }
    if (count == width_) return;
    const std::string hint = hint_(count);
    lines_.complain(Code::file, fmt::format("{} numbers", width_),
                    fmt::format("{}{}", count, hint.empty() ? "" : fmt::format(" ({})", hint)));
  }

  InputLines lines_;
  InputHint hint_;
  Index width_, at_a_time_;
};

class NumberOutput : public OutputStream {
 public:
  void write(const Tensor& rows) override { write_lines(rows.to_host(), rows.extent(1)); }
};

}  // namespace

Streams rows_of_numbers(std::istream& in, Index width, Index at_a_time, InputHint hint) {
  return {std::make_unique<NumberInput>(in, width, at_a_time, std::move(hint)),
          std::make_unique<NumberOutput>()};
}

namespace {

class TokenInput : public InputStream {
 public:
  TokenInput(std::istream& in, const Workload& network, Index at_a_time)
      : lines_(in), network_(network), at_a_time_(at_a_time) {}

  std::optional<Tensor> next() override {
    std::vector<float> rows;
    std::string line;
    Index count = 0;
    for (; count < at_a_time_ && lines_.next(line); ++count)
      network_.kind().reads_sources() ? add_source_and_target(line, rows) : add_sequence(line, rows);
    if (count == 0) return std::nullopt;
    return Tensor::from_host({count, static_cast<Index>(rows.size()) / count}, rows);
  }

  /// The number of tokens of a sequence that have a label. They come first.
  Index labelled() const { return network_.kind().reads_sources() ? length_ : length_ - 1; }
  Index length() const { return length_; }

 private:
  void add_sequence(const std::string& line, std::vector<float>& rows) {
    const std::vector<Index> ids = tokens_in(line, length_);
    if (length_ < 2) lines_.complain(Code::file, "two tokens or more", fmt::to_string(length_));
    rows.insert(rows.end(), ids.begin(), ids.end());
    rows.insert(rows.end(), ids.begin() + 1, ids.end());
    rows.push_back(static_cast<float>(Tokens::no_label));
  }
  /// The decoder's input is the labels, one place later.
  void add_source_and_target(const std::string& line, std::vector<float>& rows) {
    const std::size_t bar = line.find('|');
    if (bar == line.npos)
      lines_.complain(Code::file, "a source, '|' and the labels of its target",
                      fmt::format("'{}'", printable(line, 60)));
    const std::vector<Index> source = tokens_in(line.substr(0, bar), source_length_);
    const std::vector<Index> labels = tokens_in(line.substr(bar + 1), length_);
    const std::vector<Index> start = network_.tokens().prompt_of(source).tokens;
    rows.push_back(static_cast<float>(source_length_));
    rows.insert(rows.end(), source.begin(), source.end());
    rows.insert(rows.end(), start.begin(), start.end());
    rows.insert(rows.end(), labels.begin(), labels.end() - 1);
    rows.insert(rows.end(), labels.begin(), labels.end());
  }

  /// Parses tokens. Each line must have as many as the first; `length` is 0 before it.
  std::vector<Index> tokens_in(const std::string& text, Index& length) const {
    const auto tokens = numbers_in(text, [](Index) { return true; });
    if (!tokens)
      lines_.complain(Code::file, "tokens separated by commas", fmt::format("'{}'", printable(text, 60)));
    const auto given = static_cast<Index>(tokens->size());
    if (length == 0) length = given;
    if (given != length)
      lines_.complain(Code::file, fmt::format("{} token{}", length, length == 1 ? "" : "s"),
                      fmt::to_string(given));
    if (const std::string why = network_.tokens().why_no_sequence(*tokens, 0); !why.empty())
      lines_.complain(Code::file, why);
    return *tokens;
  }

  InputLines lines_;
  const Workload& network_;
  Index at_a_time_;
  Index length_ = 0, source_length_ = 0;
};

class LossOutput : public OutputStream {
 public:
  explicit LossOutput(const TokenInput& input) : input_(input) {}

  void write(const Tensor& losses) override {
    std::vector<float> of_labels;
    const std::vector<float> all = losses.to_host();
    for (auto row = all.begin(); row != all.end(); row += input_.length())
      of_labels.insert(of_labels.end(), row, row + input_.labelled());
    write_lines(of_labels, input_.labelled());
  }

 private:
  const TokenInput& input_;
};

}  // namespace

Streams rows_of_tokens(std::istream& in, const Workload& network, Index at_a_time) {
  auto input = std::make_unique<TokenInput>(in, network, at_a_time);
  auto output = std::make_unique<LossOutput>(*input);
  return {std::move(input), std::move(output)};
}

}  // namespace shard
