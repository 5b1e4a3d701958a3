#include "engine/proof/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace shard {

namespace {

using Values = std::vector<float>;

bool is_zero(const Values& values) {
  return std::ranges::all_of(values, [](float v) { return v == 0; });
}

/// Whether two tensors are equal, and not just because they are all zeros.
bool is_same(const HostTensor& a, const HostTensor& b) {
  return a.shape == b.shape && a.values == b.values && !is_zero(b.values);
}

/// Whether each given element is `factor` times the expected one, up to some roundings of the largest: 1/3 is
/// no float32, and each addend of a sum may have been divided by 3.
bool is_each(const Evidence& e, double factor) {
  if (e.given.shape != e.expected.shape || is_zero(e.expected.values)) return false;
  double largest = 0;
  for (float v : e.expected.values) largest = std::max(largest, std::abs(factor * double{v}));
  for (std::size_t i = 0; i < e.given.values.size(); ++i)
    if (std::abs(double{e.given.values[i]} - factor * double{e.expected.values[i]}) > 0x1p-21 * largest)
      return false;
  return true;
}

bool is_not_finite(const Evidence& e) {
  auto is_finite = [](float v) { return std::isfinite(v); };
  return !std::ranges::all_of(e.given.values, is_finite) && std::ranges::all_of(e.expected.values, is_finite);
}

/// expected + factor · addend.
HostTensor plus(const HostTensor& expected, const HostTensor& addend, float factor) {
  HostTensor sum = expected;
  for (std::size_t i = 0; i < sum.values.size() && i < addend.values.size(); ++i)
    sum.values[i] += factor * addend.values[i];
  return sum;
}

HostTensor transposed(const HostTensor& m) {
  if (m.shape.size() != 2) return {};
  HostTensor t{{m.shape[1], m.shape[0]}, {}};
  for (Index c = 0; c < m.shape[1]; ++c)
    for (Index r = 0; r < m.shape[0]; ++r)
      t.values.push_back(m.values[static_cast<std::size_t>(r * m.shape[1] + c)]);
  return t;
}

/// By how many rows (of a matrix as it is, or transposed) the given elements lie below the expected ones, as
/// far as both reach: at least half of the rows, and with elements that are not 0. 0 where they do not.
Index row_shift(const HostTensor& given, const HostTensor& expected) {
  if (given.shape != expected.shape || given.shape.size() != 2) return 0;
  const Index rows = given.shape[0], width = given.shape[1];
  for (Index shift = 1; 2 * shift <= rows; ++shift) {
    const Values above(expected.values.begin(), expected.values.end() - shift * width);
    const Values below(given.values.begin() + shift * width, given.values.end());
    if (above == below && !is_zero(above)) return shift;
    const Values later(expected.values.begin() + shift * width, expected.values.end());
    const Values earlier(given.values.begin(), given.values.end() - shift * width);
    if (later == earlier && !is_zero(later)) return -shift;
  }
  return 0;
}

/// Of the rows that are expected to be all zeros: how many there are, and how many are not.
std::pair<Index, Index> zero_rows(const HostTensor& given, const HostTensor& expected) {
  if (given.shape != expected.shape || given.shape.size() != 2) return {0, 0};
  const Index width = given.shape[1];
  Index zeros = 0, filled = 0;
  for (Index row = 0; row < given.shape[0]; ++row) {
    auto of = [&](const HostTensor& t) {
      return Values(t.values.begin() + row * width, t.values.begin() + (row + 1) * width);
    };
    if (!is_zero(of(expected))) continue;
    ++zeros;
    filled += is_zero(of(given)) ? 0 : 1;
  }
  return {zeros, filled};
}

/// Whether a gradient is as a forgotten mask makes it. A unit that is dead for all rows of the batch has a column of
/// zeros, which the mask makes: most of these are filled, as a few may be zeros by cancellation. The next layer has a
/// row of zeros for it, which its input makes: these stay. Any other wrong gradient would fill them, too.
bool fills_columns_alone(const Evidence& e) {
  const auto [columns, filled] = zero_rows(transposed(e.given), transposed(e.expected));
  return 2 * filled > columns && zero_rows(e.given, e.expected).second == 0;
}

/// A float32 with so many bits less, to the nearest; of two equally near, the even one.
float without_low_bits(float x, int bits) {
  const auto pattern = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t half = (std::uint32_t{1} << (bits - 1)) - 1 + (pattern >> bits & 1);
  return std::bit_cast<float>((pattern + half) >> bits << bits);
}

/// Whether zeros are expected wherever elements differ.
bool differs_at_zeros_alone(const Evidence& e) {
  if (e.given.shape != e.expected.shape) return false;
  for (std::size_t i = 0; i < e.given.values.size(); ++i)
    if (e.given.values[i] != e.expected.values[i] && e.expected.values[i] != 0) return false;
  return true;
}

// The rules. Each says what it sees, or nothing where it does not fit.
using Rule = std::string (*)(const Evidence&);

std::string only_if_wanted(const Evidence& e) {
  return e.was_right_with_input_grad ? "a call that is made only if dL/dx is wanted?" : "";
}
std::string not_finite(const Evidence& e) {
  return is_not_finite(e) ? "an element is not finite: memory that was never written, or an overflow?" : "";
}
std::string zero(const Evidence& e) {
  return is_each(e, 0) ? "0 in every element: never written, or its addends were left out?" : "";
}
std::string negated(const Evidence& e) {
  return is_each(e, -1) ? "-1 times it in every element: a sign?" : "";
}
std::string averaged(const Evidence& e) {
  return e.num_devices > 1 && is_each(e, 1.0 / e.num_devices)
             ? fmt::format("1/{} of it in every element: a mean where a sum is meant?", e.num_devices)
             : "";
}
std::string counted_n_times(const Evidence& e) {
  return e.num_devices > 1 && is_each(e, e.num_devices)
             ? fmt::format("{} times it in every element: summed where every device has the sum?",
                           e.num_devices)
             : "";
}
/// By a factor that four elements share at least, each up to some roundings of its own. (Two may share one by chance, and
/// small noise is no factor.)
std::string scaled(const Evidence& e) {
  if (e.given.shape != e.expected.shape) return "";
  double factor = 1;
  Index shared = 0;
  for (std::size_t i = 0; i < e.given.values.size(); ++i) {
    const double given = e.given.values[i], expected = e.expected.values[i];
    if (expected != 0 && shared++ == 0) factor = given / expected;
    if (!(std::abs(given - factor * expected) <= 0x1p-21 * std::abs(factor * expected))) return "";
  }
  const bool is_factor = shared >= 4 && std::abs(factor - 1) > 1e-3;
  return is_factor ? fmt::format("{:.4g} times it in every element: a wrong scale?", factor) : "";
}
std::string rounded(const Evidence& e) {
  auto is_rounded = [&](int bits) {
    return e.given.shape == e.expected.shape &&
           std::ranges::equal(e.given.values, e.expected.values, [=](float given, float expected) {
             return given == without_low_bits(expected, bits);
           });
  };
  if (is_rounded(16)) return "what bfloat16 has of it: a conversion to 16 bits?";
  return is_rounded(13) ? "what float16 has of it: a conversion to 16 bits?" : "";
}
std::string previous_step(const Evidence& e) {
  return e.before && is_same(e.given, *e.before)
             ? "the result of the step before: weights not updated, or not "
               "gathered after the step?"
             : "";
}
std::string one_addend(const Evidence& e) {
  for (std::size_t d = 0; d < e.addends.size() && e.num_devices > 1; ++d)
    if (is_same(e.given, e.addends[d]))
      return fmt::format("device {}'s addend alone: a reduction left out?", d);
  return "";
}
/// The sum and a device's addend, `factor` times.
std::string off_by_addend(const Evidence& e, float factor, const char* says) {
  for (std::size_t d = 0; d < e.addends.size() && e.num_devices > 1; ++d)
    if (!is_zero(e.addends[d].values) && is_same(e.given, plus(e.expected, e.addends[d], factor)))
      return fmt::format("device {}'s addend {}", d, says);
  return "";
}
std::string addend_missing(const Evidence& e) {
  return off_by_addend(e, -1, "is missing from the sum");
}
std::string addend_twice(const Evidence& e) {
  return off_by_addend(e, 1, "is in the sum twice");
}
std::string is_transposed(const Evidence& e) {
  return is_same(e.given, transposed(e.expected)) ? "the transposed matrix" : "";
}
std::string other_slice(const Evidence& e) {
  for (std::size_t d = 0; d < e.slices.size(); ++d)
    if (static_cast<int>(d) != e.place && is_same(e.given, e.slices[d]))
      return fmt::format("device {}'s slice, not device {}'s", d, e.place);
  return "";
}
std::string shifted(const Evidence& e) {
  if (const Index rows = row_shift(e.given, e.expected))
    return fmt::format("it, but {} row{} further {}", std::abs(rows), std::abs(rows) == 1 ? "" : "s",
                       rows > 0 ? "down" : "up");
  if (const Index columns = row_shift(transposed(e.given), transposed(e.expected)))
    return fmt::format("it, but {} column{} further {}", std::abs(columns), std::abs(columns) == 1 ? "" : "s",
                       columns > 0 ? "right" : "left");
  return "";
}
std::string mask_forgotten(const Evidence& e) {
  return differs_at_zeros_alone(e) || fills_columns_alone(e)
             ? "not 0 where 0 is expected: a ReLU's mask forgotten?"
             : "";
}

/// The table.
constexpr std::pair<Cause, Rule> rules[] = {{Cause::only_if_wanted, only_if_wanted},
                                            {Cause::not_finite, not_finite},
                                            {Cause::zero, zero},
                                            {Cause::negated, negated},
                                            {Cause::averaged, averaged},
                                            {Cause::counted_n_times, counted_n_times},
                                            {Cause::previous_step, previous_step},
                                            {Cause::one_addend, one_addend},
                                            {Cause::addend_missing, addend_missing},
                                            {Cause::addend_twice, addend_twice},
                                            {Cause::transposed, is_transposed},
                                            {Cause::other_slice, other_slice},
                                            {Cause::scaled, scaled},
                                            {Cause::rounded, rounded},
                                            {Cause::shifted, shifted},
                                            {Cause::mask_forgotten, mask_forgotten}};

}  // namespace

Diagnosis diagnose(const Evidence& evidence) {
  for (const auto& [cause, rule] : rules)
    if (std::string text = rule(evidence); !text.empty()) return {cause, std::move(text)};
  return {Cause::unknown, "no known cause"};
}

}  // namespace shard
