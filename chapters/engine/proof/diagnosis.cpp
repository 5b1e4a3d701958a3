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

/// The number of elements in which two tensors of one shape differ.
Index differing(const HostTensor& a, const HostTensor& b) {
  Index count = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) count += a.values[i] != b.values[i] ? 1 : 0;
  return count;
}

/// Whether the given tensor is `other`, which differs from the expected one in two elements at least: of many
/// explanations, one may agree with a single element by chance.
bool explains(const Evidence& e, const HostTensor& other) {
  return is_same(e.given, other) && differing(other, e.expected) >= 2;
}

/// The elements of a tensor whose indices are within this shape.
HostTensor beginning(const HostTensor& t, const Shape& shape) {
  HostTensor some{shape, {}};
  for (Index i = 0; i < std::ssize(t.values); ++i)
    if (std::ranges::equal(place_of(i, t.shape), shape, std::less()))
      some.values.push_back(t.values[static_cast<std::size_t>(i)]);
  return some;
}

/// Whether each given element is `factor` times the expected one, up to some roundings of the largest
/// element: 1/3 is no float32, and each addend of a sum may have been divided by 3.
bool is_each(const Evidence& e, double factor) {
  if (e.given.shape != e.expected.shape || is_zero(e.expected.values)) return false;
  double largest = 0;
  for (float v : e.expected.values) largest = std::max(largest, std::abs(factor * double{v}));
  for (std::size_t i = 0; i < e.given.values.size(); ++i)
    if (!(std::abs(double{e.given.values[i]} - factor * double{e.expected.values[i]}) <= 0x1p-21 * largest))
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

Diagnosis known(const Evidence& e) {
  return e.known;
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
/// A product with 0 has the sign that the other factor had. A part of a sum may be 0: then it may be that part alone.
Diagnosis zero(const Evidence& e) {
  if (is_each(e, 0))
    for (const PartOfSum& a : e.addends)
      if (is_zero(a.values.values)) return Diagnosis(Cause::one_addend, {a.of});
  auto has_sign = [](float given, float expected) { return std::signbit(given) == (expected < 0); };
  const bool has_signs = std::ranges::any_of(e.expected.values, [](float v) { return v < 0; }) &&
                         std::ranges::equal(e.given.values, e.expected.values, has_sign);
  return only_if(is_each(e, 0), has_signs ? Cause::times_zero : Cause::zero);
}
Diagnosis another_version(const Evidence& e) {
  for (const OtherVersion& other : e.others)
    if (explains(e, other.values)) return other.says;
  return Diagnosis();
}
/// Whether at least two elements are other than 0.
bool has_two(const HostTensor& t) {
  return std::ranges::count_if(t.values, [](float v) { return v != 0; }) >= 2;
}
Diagnosis negated(const Evidence& e) {
  return only_if(has_two(e.expected) && is_each(e, -1), Cause::negated);
}
/// The numbers of all devices, of those with different rows, and of those with the same rows.
std::vector<Index> numbers_of_devices(const Evidence& e) {
  const Index n = e.num_devices, different = std::ssize(e.addends);
  if (different < 2 || n % different != 0) return {n};
  return {n, different, n / different};
}
Diagnosis averaged(const Evidence& e) {
  std::vector<Index> over = numbers_of_devices(e);
  over.push_back(std::ssize(e.pieces));
  for (const Index n : over)
    if (n > 1 && has_two(e.expected) && is_each(e, 1.0 / static_cast<double>(n)))
      return Diagnosis(Cause::averaged, {std::to_string(n)});
  return Diagnosis();
}
Diagnosis counted_n_times(const Evidence& e) {
  for (const Index n : numbers_of_devices(e))
    if (n > 1 && has_two(e.expected) && is_each(e, static_cast<double>(n)))
      return Diagnosis(Cause::counted_n_times, {std::to_string(n), n == 2 ? ", or a wrong scale" : ""});
  return Diagnosis();
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
  for (const PartOfSum& of_device : e.addends)
    total = plus(total, of_device.values, 1 / static_cast<float>(of_device.rows));
  double both = 0, square = 0;
  for (std::size_t i = 0; i < total.values.size() && i < e.given.values.size(); ++i) {
    both += double{e.given.values[i]} * double{total.values[i]};
    square += double{total.values[i]} * double{total.values[i]};
  }
  const Evidence own{.given = e.given, .expected = total};
  const bool is_known =
      differing(total, HostTensor{{}, Values(total.values.size())}) >= 4;  // one factor is free
  return only_if(is_known && square > 0 && is_each(own, both / square), Cause::averaged_over_own_rows);
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
/// One of the addends alone, the sum without it, or the sum with it twice.
Diagnosis off_by_one_of(const std::vector<PartOfSum>& addends, const Evidence& e, Cause alone, Cause missing,
                        Cause twice, const std::string& more) {
  for (const PartOfSum& a : addends)
    if (explains(e, a.values)) return Diagnosis(alone, {a.of, more});
  for (const auto& [factor, cause] : {std::pair{-1.0F, missing}, {1.0F, twice}})
    for (const PartOfSum& a : addends)
      if (explains(e, plus(e.expected, a.values, factor))) return Diagnosis(cause, {a.of, more});
  return Diagnosis();
}
Diagnosis off_by_addend(const Evidence& e) {
  return off_by_one_of(e.addends, e, Cause::one_addend, Cause::addend_missing, Cause::addend_twice, "");
}
Diagnosis off_by_piece(const Evidence& e) {
  return off_by_one_of(e.pieces, e, Cause::one_piece, Cause::piece_missing, Cause::piece_twice,
                       e.addends.empty() ? "" : " of each device");
}
/// The sum over micro-batches, multiplied by a factor before each next one is added, and by `last` at the end.
bool is_multiplied_with_each_piece(const Evidence& e, double factor, double last) {
  HostTensor total{e.expected.shape, Values(e.expected.values.size())};
  for (const PartOfSum& piece : e.pieces) {
    for (float& v : total.values) v *= static_cast<float>(factor);
    total = plus(total, piece.values, 1);
  }
  return differing(total, e.expected) >= 2 && is_each({.given = e.given, .expected = total}, last);
}
Diagnosis scaled_with_each_piece_in_order(const Evidence& e) {
  if (e.pieces.size() < 2) return Diagnosis();
  std::vector<Index> numbers = numbers_of_devices(e);
  for (const Index n : numbers)
    if (n > 1 && is_multiplied_with_each_piece(e, static_cast<double>(n), 1))
      return Diagnosis(Cause::multiplied_with_each_piece);
  numbers.push_back(std::ssize(e.pieces));
  for (const Index n : numbers)
    for (const double last : {1.0, 1.0 / static_cast<double>(n)})
      if (n > 1 && is_multiplied_with_each_piece(e, 1.0 / static_cast<double>(n), last))
        return Diagnosis(Cause::divided_with_each_piece, {std::to_string(n)});
  return Diagnosis();
}
/// Some schedules take the last micro-batch back first.
Diagnosis scaled_with_each_piece(const Evidence& e) {
  if (const Diagnosis found = scaled_with_each_piece_in_order(e); found.cause != Cause::unknown) return found;
  Evidence turned = e;
  std::ranges::reverse(turned.pieces);
  return scaled_with_each_piece_in_order(turned);
}
Diagnosis is_transposed(const Evidence& e) {
  return only_if(explains(e, turned(e.expected)), Cause::transposed);
}
/// Slices may have different lengths. The shortest has at least half of the indices that are given.
Diagnosis other_slice(const Evidence& e) {
  for (std::size_t d = 0; d < e.slices.size(); ++d) {
    const HostTensor& slice = e.slices[d];
    const bool is_long_enough = 2 * slice.values.size() > e.given.values.size();
    if (static_cast<int>(d) == e.place || !is_long_enough) continue;
    const Evidence both{.given = beginning(e.given, slice.shape),
                        .expected = beginning(e.expected, slice.shape)};
    if (explains(both, slice))
      return Diagnosis(Cause::other_slice, {std::to_string(d), std::to_string(e.place)});
  }
  return Diagnosis();
}
/// Losses, each rounded to a multiple of 1/8, that differ by the logarithm of a number of devices. Tokens without a
/// label have no loss.
Diagnosis log_off(const Evidence& e) {
  if (!e.is_log_loss || differing(e.given, e.expected) < 3) return Diagnosis();
  auto is_off_by = [&](double by) {
    return std::ranges::equal(e.given.values, e.expected.values, [=](float given, float expected) {
      return given == 0 && expected == 0 ? true : std::abs(double{given} - double{expected} - by) <= 0.125;
    });
  };
  for (int n = 2; n <= e.num_devices; ++n) {
    if (e.num_devices % n != 0) continue;
    if (is_off_by(std::log2(n))) return Diagnosis(Cause::log_more, {std::to_string(n)});
    if (is_off_by(-std::log2(n))) return Diagnosis(Cause::log_less, {std::to_string(n)});
  }
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
constexpr Rule rules[] = {known,
                          only_if_wanted,
                          not_finite,
                          zero,
                          another_version,
                          negated,
                          averaged,
                          counted_n_times,
                          off_by_addend,
                          off_by_piece,
                          is_transposed,
                          other_slice,
                          log_off,
                          scaled,
                          rounded,
                          shifted,
                          averaged_over_own_rows,
                          scaled_with_each_piece};

constexpr const char* sentences[] = {
#define CAUSE(name, sentence) sentence,
#include "suite/shardbook_check/causes.inc"
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
