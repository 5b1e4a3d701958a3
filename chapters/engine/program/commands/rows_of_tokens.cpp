#include <fmt/format.h>

#include "engine/basics/printable.hpp"
#include "engine/layers/tokens/tokens.hpp"
#include "engine/program/commands/rows.hpp"

namespace shard {

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
    const std::vector<Index> start = network_.prompt_of(source).tokens;
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
    if (const std::string why = network_.why_no_sequence(*tokens, 0); !why.empty())
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
