#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "engine/basics/printable.hpp"
#include "engine/program/commands/rows.hpp"

namespace shard {

namespace {

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

}  // namespace shard
