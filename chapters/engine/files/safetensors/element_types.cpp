#include "engine/files/safetensors/element_types.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace shard::safetensors {

namespace {

/// Types of elements with this number of bytes.
struct Dtypes {
  std::uint64_t bytes;
  std::vector<std::string_view> names;
};
/// In the order of Hugging Face's library, which writes the last of these first.
const std::vector<Dtypes> all_dtypes = {{1, {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"}},
                                        {2, {"I16", "U16", "F16", "BF16"}},
                                        {4, {"I32", "U32", "F32"}},
                                        {8, {"C64", "F64", "I64", "U64"}}};

/// A value with a sign, `exponent_bits` and `fraction_bits`, as bits: IEEE 754, also subnormal.
struct SmallFloat {
  int fraction_bits;
  int exponent_bits;

  int lowest_exponent() const { return 2 - (1 << (exponent_bits - 1)); }  // of a normal number
  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1U << exponent_bits) - 1) << fraction_bits);
  }

  double value(std::uint16_t bits) const {
    const int sign = bits >> (fraction_bits + exponent_bits);
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = bits & ((1 << fraction_bits) - 1);
    double magnitude = std::ldexp(fraction + (exponent > 0 ? 1 << fraction_bits : 0),
                                  std::max(exponent - 1, 0) + lowest_exponent() - fraction_bits);
    if (exponent == (1 << exponent_bits) - 1)
      magnitude =
          fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return sign != 0 ? -magnitude : magnitude;
  }

  std::uint16_t bits(double value) const {
    const unsigned sign = std::signbit(value) ? 1U << (fraction_bits + exponent_bits) : 0U;
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity() | 1U << (fraction_bits - 1));
    if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity());
    int above = 0;  // |value| < 2^above
    std::frexp(value, &above);
    const int exponent = value == 0 ? lowest_exponent() : std::max(above - 1, lowest_exponent());
    // In units in the last place, with the leading bit: a carry then goes into the exponent.
    const double units = std::nearbyint(std::ldexp(std::abs(value), fraction_bits - exponent));
    const double magnitude = std::ldexp(exponent - lowest_exponent(), fraction_bits) + units;
    return static_cast<std::uint16_t>(
        sign | static_cast<unsigned>(std::min(magnitude, static_cast<double>(infinity()))));
  }
};

constexpr SmallFloat half{10, 5};
constexpr SmallFloat bfloat16{7, 8};

template <class Element, auto value>
void to_floats(const std::byte* in, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, in + i * sizeof element, sizeof element);
    out[i] = static_cast<float>(value(element));
  }
}

template <class Element>
Element as_it_is(Element value) {
  return value;
}
double of_half(std::uint16_t bits) {
  return half.value(bits);
}
float of_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

double value_at(const std::byte* in, std::string_view dtype) {
  double as_double = 0;
  float as_float = 0;
  std::uint16_t bits = 0;
  if (dtype == "F64") return std::memcpy(&as_double, in, sizeof as_double), as_double;
  if (dtype == "F32") return std::memcpy(&as_float, in, sizeof as_float), as_float;
  std::memcpy(&bits, in, sizeof bits);
  return (dtype == "F16" ? half : bfloat16).value(bits);
}

/// Writes a value as `dtype`. Returns whether the result is finite.
bool put(double value, std::string_view dtype, std::byte* out) {
  if (dtype == "F64") return std::memcpy(out, &value, sizeof value), std::isfinite(value);
  if (dtype == "F32") {
    const auto rounded = static_cast<float>(value);
    return std::memcpy(out, &rounded, sizeof rounded), std::isfinite(rounded);
  }
  const SmallFloat& type = dtype == "F16" ? half : bfloat16;
  const std::uint16_t bits = type.bits(value);
  return std::memcpy(out, &bits, sizeof bits), std::isfinite(type.value(bits));
}

}  // namespace

std::uint64_t element_bytes(std::string_view dtype) {
  for (const auto& [bytes, names] : all_dtypes)
    if (std::ranges::find(names, dtype) != names.end()) return bytes;
  return 0;
}

int file_order(std::string_view dtype) {
  int place = 0;
  for (const auto& [bytes, names] : all_dtypes)
    for (const std::string_view name : names) {
      if (name == dtype) return place;
      --place;  // so the last comes first
    }
  return 1;
}

ToFloat to_float(std::string_view dtype) {
  if (dtype == "F32") return to_floats<float, as_it_is<float>>;
  if (dtype == "F64") return to_floats<double, as_it_is<double>>;
  if (dtype == "F16") return to_floats<std::uint16_t, of_half>;
  if (dtype == "BF16") return to_floats<std::uint16_t, of_bfloat16>;
  if (dtype == "I64") return to_floats<std::int64_t, as_it_is<std::int64_t>>;
  if (dtype == "I32") return to_floats<std::int32_t, as_it_is<std::int32_t>>;
  return nullptr;
}

bool is_floating(std::string_view dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

std::vector<std::byte> converted(const std::vector<std::byte>& elements, std::string_view from,
                                 std::string_view to, std::int64_t& overflows) {
  const std::size_t in = element_bytes(from), out = element_bytes(to), count = elements.size() / in;
  std::vector<std::byte> result(count * out);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = value_at(elements.data() + i * in, from);
    if (!put(value, to, result.data() + i * out) && std::isfinite(value)) ++overflows;
  }
  return result;
}

}  // namespace shard::safetensors
