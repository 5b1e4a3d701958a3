#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/safetensors/element_types.hpp"
#include "engine/files/safetensors/safetensors.hpp"

/// What the reader and the writer of safetensors files share.
namespace shard::safetensors {

inline constexpr std::uint64_t max_header_bytes = 100'000'000;  ///< as in the reference implementation
inline constexpr std::size_t max_string_bytes = 1 << 20;  ///< of a name or a metadata value, in its JSON form
inline constexpr std::size_t max_rank = 64;               ///< of dimensions, as in NumPy and PyTorch

/// The content of a header.
struct Header {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Parses and checks a header that precedes `data_bytes` bytes of data; `path` is for messages.
/// \throws Error file at the first violation of the format
Header parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& path);

/// The size of a tensor in bytes. Nothing if the product of the dimensions other than 0 exceeds 2^63-1: a 0
/// does not make the other dimensions valid.
std::optional<std::uint64_t> tensor_bytes(const std::vector<std::int64_t>& shape,
                                          std::uint64_t element_bytes);

/// `text` as a JSON string with its quotes; nothing if it is not UTF-8.
std::optional<std::string> json_string(const std::string& text);

}  // namespace shard::safetensors
