#include "engine/workloads/data/digits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/basics/printable.hpp"
#include "engine/basics/terminal.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/data/characters.hpp"
#include "engine/workloads/random.hpp"

namespace shard {

namespace {

constexpr float noise_sigma = 0.3F;

[[noreturn]] void refuse_line(const std::string& path, Index line, const std::string& expected,
                              const std::string& given) {
  throw Error(Code::file, "{}: line {}: expected {}, given {}", printable(path, 120), line, expected, given);
}

std::vector<int> parse_line(const std::string& path, Index line_number, const std::string& line) {
  std::vector<int> numbers;
  const char* at = line.data();
  const char* end = at + line.size();
  while (at != end) {
    int number = -1;
    auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (stop != end && *stop != ','))
      refuse_line(path, line_number, "integers separated by commas",
                  fmt::format("'{}'", printable(std::string(at, end), 20)));
    numbers.push_back(number);
    at = stop == end ? end : stop + 1;
  }
  return numbers;
}

}  // namespace

std::string Digits::default_path() {
  return data_path("digits.csv");
}

Digits::Digits(const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path))
    throw Error(Code::file, printable(path, 120) + ": expected the digits, given no readable file");
  std::string line;
  for (Index number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    std::vector<int> row = parse_line(path, number, line);
    if (static_cast<Index>(row.size()) != pixels + 1)
      refuse_line(path, number, "64 pixels and a label", fmt::format("{} numbers", row.size()));
    row.pop_back();  // the label
    auto odd = std::ranges::find_if(row, [](int p) { return p < 0 || p > 16; });
    if (odd != row.end())
      refuse_line(path, number, "pixels of 0 to 16",
                  fmt::format("{} for pixel {}", *odd, odd - row.begin() + 1));
    values_.insert(values_.end(), row.begin(), row.end());
  }
  if (values_.empty())
    throw Error(Code::file, printable(path, 120) + ": expected the digits, given an empty file");
}

DenoisingBatch::DenoisingBatch(const Digits& digits, std::uint64_t seed, Index step, Index batch)
    : digits_(digits),
      seed_(seed),
      step_(step),
      loss_(batch, Digits::pixels, [this](Range rows) { return clean(rows); }) {}

Tensor DenoisingBatch::images(Range rows, bool with_noise) const {
  const CounterRandom choice(seed_, fmt::format("digits of step {}", step_));
  const CounterRandom noise(seed_, fmt::format("noise of step {}", step_));
  std::vector<float> values;
  for (Index row = rows.begin; row < rows.end; ++row) {
    const Index digit =
        choice.integer(static_cast<std::uint64_t>(row), 0, static_cast<int>(digits_.size()) - 1);
    for (Index p = 0; p < Digits::pixels; ++p) {
      values.push_back(static_cast<float>(digits_.pixel(digit, p)) / 16);
      if (with_noise)
        values.back() += noise_sigma * noise.normal(static_cast<std::uint64_t>(row * Digits::pixels + p));
    }
  }
  return Tensor::from_host({rows.size(), Digits::pixels}, values);
}

namespace {

/// A row of eight pixels, two characters each.
std::string shades_of(const std::vector<float>& image, std::size_t row) {
  constexpr std::string_view shades = " .:-=+*%@#";
  std::string text;
  for (std::size_t x = 0; x < 8; ++x) {
    const float value = image[8 * row + x];
    const float shade = std::clamp(value, 0.0F, 1.0F) * static_cast<float>(shades.size() - 1);
    text.append(2, std::isnan(value) ? '?' : shades[static_cast<std::size_t>(shade + 0.5F)]);
  }
  return text;
}

}  // namespace

std::string draw_digits(const std::vector<PairOfImages>& pairs, int width) {
  constexpr std::string_view indent = "  ", between = "    ";
  constexpr std::size_t width_of_pair = 16 + 3 + 16;
  const std::size_t room = static_cast<std::size_t>(std::max(width, 0)) + between.size() - indent.size();
  const std::size_t count = std::clamp<std::size_t>(room / (width_of_pair + between.size()), 1, pairs.size());
  std::string text;
  for (std::size_t line = 0; line < 9; ++line) {
    for (std::size_t i = 0; i < count; ++i) {
      text += i == 0 ? indent : between;
      text += line == 0 ? fmt::format("{:16} | {:16}", "noisy", "mended")
                        : fmt::format("{} | {}", shades_of(pairs[i].first, line - 1),
                                      shades_of(pairs[i].second, line - 1));
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

const Option<std::string>& DenoisingWorkload::data_option() {
  static const auto data = of_data(Option<std::string>(
      "--data", Digits::default_path(), "The digits, 64 pixels of 0..16 and a label a line", "FILE"));
  return data;
}

void DenoisingWorkload::open_data() {
  if (output_shape(1).at(1) != Digits::pixels)
    throw Error(Code::usage,
                "train: --layers: expected an even number, as the output is an image again, given {}",
                num_layers());
  digits_ = std::make_shared<const Digits>(data_);
}

std::unique_ptr<TrainingBatch> DenoisingWorkload::batch(Index rows, std::uint64_t seed, Index step) const {
  return std::make_unique<DenoisingBatch>(*digits_, seed, step, rows);
}

Examples DenoisingWorkload::examples(ShardedEngine& engine, std::uint64_t seed) const {
  constexpr Index count = 3;  // also where a terminal has room for fewer: all devices compute the same
  InferenceMode no_tape;
  DenoisingBatch shown(*digits_, seed, 0);  // training steps begin at 1
  Tensor mended = engine.whole(engine.forward(shown.noisy(engine.input_rows(count))));
  std::vector<PairOfImages> pairs;
  for (Index i = 0; i < count; ++i)
    pairs.emplace_back(shown.noisy({i, i + 1}).to_host(), slice(mended, 0, i, i + 1).to_host());
  return {"noisy digits, and what the network makes of them", draw_digits(pairs, output_columns())};
}

/// The mean, over all pixels, of their variance.
std::string DenoisingWorkload::yardstick() const {
  double loss = 0;
  const auto n = static_cast<double>(digits_->size());
  for (Index p = 0; p < Digits::pixels; ++p) {
    double sum = 0, squares = 0;
    for (Index digit = 0; digit < digits_->size(); ++digit) {
      const double value = digits_->pixel(digit, p) / 16.0;
      sum += value;
      squares += value * value;
    }
    loss += (squares - sum * sum / n) / n / static_cast<double>(Digits::pixels);
  }
  return fmt::format("always answering with the mean digit has a loss of {:.4f}", loss);
}

}  // namespace shard
