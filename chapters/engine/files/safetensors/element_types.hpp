#pragma once

/// The types of elements in a safetensors file, and the conversions between them.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace shard::safetensors {

/// Bytes of one element, or 0 for a dtype that the format does not know.
std::uint64_t element_bytes(std::string_view dtype);

/// The position of a dtype in the order in which Hugging Face's library writes tensors: larger types first.
int file_order(std::string_view dtype);

/// Converts `count` elements at `in`, which need not be aligned, to float32.
using ToFloat = void (*)(const std::byte* in, std::size_t count, float* out);
/// The conversion from F32, F64, F16, BF16, I64 or I32; null for another dtype.
ToFloat to_float(std::string_view dtype);

/// Whether a dtype is F64, F32, F16 or BF16: these can be converted into one another.
bool is_floating(std::string_view dtype);
/// Converts elements of one floating dtype to another. Each is rounded once to the nearest value, ties to
/// even. NaN and infinities stay. `overflows` grows by the number of finite values that became infinite.
std::vector<std::byte> converted(const std::vector<std::byte>& elements, std::string_view from,
                                 std::string_view to, std::int64_t& overflows);

}  // namespace shard::safetensors
