#include "engine/proof/diagnosis.hpp"

#include <fmt/args.h>
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

/// Whether two tensors are equal, and not all zeros.
bool is_same(const HostTensor& a, const HostTensor& b) {
  return a.shape == b.shape && a.values == b.values && !is_zero(b.values);
}

/// Whether each given element is `factor` times the expected one, up to some roundings of the largest
/// element: 1/3 is no float32, and each addend of a sum may have been divided by 3.
bool is_each(const Evidence& e, double factor) {
  if (e.given.shape != e.expected.shape || is_zero(e.expected.values)) return false;
  double largest = 0;
  for (float v : e.expected.values) largest = std::max(largest, std::abs(factor * double{v}));
  for (std::size_t i = 0; i < e.given.values.size(); ++i)
    if (std::abs(double{e.given.values[i]} - factor * double{e.expected.values[i]}) > 0x1p-21 * largest)
      return false;
  return true;
}

/// expected + factor · addend.
HostTensor plus(const HostTensor& expected, const HostTensor& addend, float factor) {
  HostTensor sum = expected;
  for (std::size_t i = 0; i < sum.values.size() && i < addend.values.size(); ++i)
    sum.values[i] += factor * addend.values[i];
  return sum;
}

/// The transpose of a matrix, and nothing of another tensor.
HostTensor turned(const HostTensor& t) {
  return t.shape.size() == 2 ? transposed(t) : HostTensor();
}

/// The number of rows by which the given elements are shifted down (up: negative), or 0. The shifted rows
/// must be at least half of all rows, and not all zeros. For columns, callers pass transposed matrices.
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

/// A float32 rounded to a number of fewer bits, ties to even.
float without_low_bits(float x, int bits) {
  const auto pattern = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t half = (std::uint32_t{1} << (bits - 1)) - 1 + (pattern >> bits & 1);
  return std::bit_cast<float>((pattern + half) >> bits << bits);
}

// The rules. Each returns a diagnosis, or an unknown cause if it does not apply.
using Rule = Diagnosis (*)(const Evidence&);

Diagnosis only_if(bool fits, Cause cause, const std::vector<std::string>& words = {}) {
  return fits ? Diagnosis(cause, words) : Diagnosis();
}

Diagnosis only_if_wanted(const Evidence& e) {
  return only_if(e.was_right_with_input_grad, Cause::only_if_wanted);
}
Diagnosis not_finite(const Evidence& e) {
  auto are_finite = [](const Values& values) {
    return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
  };
  return only_if(!are_finite(e.given.values) && are_finite(e.expected.values), Cause::not_finite);
}
/// A product with 0 has the sign that the other factor had.
Diagnosis zero(const Evidence& e) {
  auto has_sign = [](float given, float expected) { return std::signbit(given) == (expected < 0); };
  const bool has_signs = std::ranges::any_of(e.expected.values, [](float v) { return v < 0; }) &&
                         std::ranges::equal(e.given.values, e.expected.values, has_sign);
  return only_if(is_each(e, 0), has_signs ? Cause::times_zero : Cause::zero);
}
Diagnosis another_version(const Evidence& e) {
  for (const OtherVersion& other : e.others)
    if (is_same(e.given, other.values)) return other.says;
  return Diagnosis();
}
Diagnosis negated(const Evidence& e) {
  return only_if(is_each(e, -1), Cause::negated);
}
Diagnosis averaged(const Evidence& e) {
  return only_if(e.num_devices > 1 && is_each(e, 1.0 / e.num_devices), Cause::averaged,
                 {std::to_string(e.num_devices)});
}
Diagnosis counted_n_times(const Evidence& e) {
  return only_if(e.num_devices > 1 && is_each(e, e.num_devices), Cause::counted_n_times,
                 {std::to_string(e.num_devices), e.num_devices == 2 ? ", or a wrong scale" : ""});
}
/// All elements have the same factor, up to some roundings each. At least four elements must be other than 0,
/// since two may agree by chance.
Diagnosis scaled(const Evidence& e) {
  if (e.given.shape != e.expected.shape) return Diagnosis();
  double factor = 1;
  Index shared = 0;
  for (std::size_t i = 0; i < e.given.values.size(); ++i) {
    const double given = e.given.values[i], expected = e.expected.values[i];
    if (expected != 0 && shared++ == 0) factor = given / expected;
    if (!(std::abs(given - factor * expected) <= 0x1p-21 * std::abs(factor * expected))) return Diagnosis();
  }
  return only_if(shared >= 4 && std::abs(factor - 1) > 1e-3, Cause::scaled, {fmt::format("{:.4g}", factor)});
}
/// The sum of the devices' addends, where each is divided by the number of the device's rows, times a factor.
Diagnosis averaged_over_own_rows(const Evidence& e) {
  HostTensor total{e.expected.shape, Values(e.expected.values.size())};
  const int devices = static_cast<int>(e.addends.size());
  for (int d = 0; d < devices; ++d)
    if (const Index own = part(e.rows, devices, d).size(); own > 0)
      total = plus(total, e.addends[static_cast<std::size_t>(d)], 1 / static_cast<float>(own));
  double both = 0, square = 0;
  for (std::size_t i = 0; i < total.values.size() && i < e.given.values.size(); ++i) {
    both += double{e.given.values[i]} * double{total.values[i]};
    square += double{total.values[i]} * double{total.values[i]};
  }
  const Evidence own{.given = e.given, .expected = total};
  return only_if(devices > 1 && square > 0 && is_each(own, both / square), Cause::averaged_over_own_rows);
}
Diagnosis rounded(const Evidence& e) {
  auto is_rounded = [&](int bits) {
    return e.given.shape == e.expected.shape &&
           std::ranges::equal(e.given.values, e.expected.values, [=](float given, float expected) {
             return given == without_low_bits(expected, bits);
           });
  };
  if (is_rounded(16)) return Diagnosis(Cause::rounded, {"bfloat16"});
  return only_if(is_rounded(13), Cause::rounded, {"float16"});
}
Diagnosis one_addend(const Evidence& e) {
  for (std::size_t d = 0; d < e.addends.size() && e.num_devices > 1; ++d)
    if (is_same(e.given, e.addends[d])) return Diagnosis(Cause::one_addend, {std::to_string(d)});
  return Diagnosis();
}
/// The sum plus `factor` times one device's addend.
Diagnosis off_by_addend(const Evidence& e, float factor, Cause cause) {
  for (std::size_t d = 0; d < e.addends.size() && e.num_devices > 1; ++d)
    if (!is_zero(e.addends[d].values) && is_same(e.given, plus(e.expected, e.addends[d], factor)))
      return Diagnosis(cause, {std::to_string(d)});
  return Diagnosis();
}
Diagnosis addend_missing(const Evidence& e) {
  return off_by_addend(e, -1, Cause::addend_missing);
}
Diagnosis addend_twice(const Evidence& e) {
  return off_by_addend(e, 1, Cause::addend_twice);
}
Diagnosis is_transposed(const Evidence& e) {
  return only_if(is_same(e.given, turned(e.expected)), Cause::transposed);
}
Diagnosis other_slice(const Evidence& e) {
  for (std::size_t d = 0; d < e.slices.size(); ++d)
    if (static_cast<int>(d) != e.place && is_same(e.given, e.slices[d]))
      return Diagnosis(Cause::other_slice, {std::to_string(d), std::to_string(e.place)});
  return Diagnosis();
}
Diagnosis shifted_by(Index count, const std::string& what, const std::string& where) {
  return Diagnosis(Cause::shifted,
                   {std::to_string(std::abs(count)), what + (std::abs(count) == 1 ? "" : "s"), where});
}
Diagnosis shifted(const Evidence& e) {
  if (const Index rows = row_shift(e.given, e.expected))
    return shifted_by(rows, "row", rows > 0 ? "down" : "up");
  const Index columns = row_shift(turned(e.given), turned(e.expected));
  return columns != 0 ? shifted_by(columns, "column", columns > 0 ? "right" : "left") : Diagnosis();
}

/// The rules in the order in which they are tried.
constexpr Rule rules[] = {
    only_if_wanted,  not_finite, zero,           another_version,       negated,       averaged,
    counted_n_times, one_addend, addend_missing, addend_twice,          is_transposed, other_slice,
    scaled,          rounded,    shifted,        averaged_over_own_rows};

constexpr const char* sentences[] = {
#define CAUSE(name, sentence) sentence,
#include "engine/proof/causes.inc"
#undef CAUSE
};

}  // namespace

Diagnosis::Diagnosis(Cause c, const std::vector<std::string>& words) : cause(c) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const std::string& word : words) store.push_back(word);
  text = fmt::vformat(sentences[static_cast<std::size_t>(c)], store);
}

Diagnosis diagnose(const Evidence& evidence) {
  for (const Rule rule : rules)
    if (Diagnosis found = rule(evidence); found.cause != Cause::unknown) return found;
  return Diagnosis();
}

}  // namespace shard
