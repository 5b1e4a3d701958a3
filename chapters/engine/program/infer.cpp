#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "engine/printable.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/parameters.hpp"

namespace shard {

namespace {

/// Reads and writes rows of numbers: each line is a row, with commas between the numbers.
class CsvInput : public InputStream {
 public:
  /// `hint`: about a row of this width, which is not the network's.
  CsvInput(std::istream& in, Index width, Index rows_at_a_time, std::function<std::string(Index)> hint)
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
    if (count == width_) return;
    const std::string hint = hint_(count);
    complain(Code::file, fmt::format("{} numbers", width_),
             fmt::format("{}{}", count, hint.empty() ? "" : fmt::format(" ({})", hint)));
  }

  [[noreturn]] void complain(Code code, const std::string& expected, const std::string& given) const {
    throw Error(code, fmt::format("standard input: line {}: expected {}, given {}", line_, expected, given));
  }

  std::istream& in_;
  std::function<std::string(Index)> hint_;
  Index width_;
  Index rows_;
  Index line_ = 0;
};

class CsvOutput : public OutputStream {
 public:
  void write(const Tensor& rows) override {
    std::vector<float> values = rows.to_host();
    fmt::memory_buffer text;
    for (Index i = 0; i < rows.size(); ++i)
      fmt::format_to(std::back_inserter(text), "{}{}", values[static_cast<std::size_t>(i)],
                     (i + 1) % rows.extent(1) == 0 ? '\n' : ',');
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      throw Error(Code::file, "standard output: expected to write the results, given an error of the system");
  }
};

}  // namespace

int infer(Communicator& group, const Variant& variant, const Arguments& arguments) {
  const Parameters params = open_parameters(*variant.workload, arguments);
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload, arguments.options);
  if (variant.require) variant.require(group.num_devices(), *network, arguments.options);
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, arguments.options);
  engine->load_checkpoint(*params.checkpoint);
  CsvInput input(std::cin, network->input_shape(1).at(1), arguments.batch,
                 [&](Index width) { return params.input_hint(*network, width); });
  CsvOutput output;
  engine->inference_loop(input, output);
  if (group.device_id() == 0 && std::ferror(stdin) != 0)
    throw Error(Code::file, "standard input: expected rows of numbers, given an error of the system");
  return 0;
}

}  // namespace shard
