#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/element_types.hpp"
#include "engine/files/safetensors.hpp"

/// What the reader and the writer of safetensors files share.
namespace shard::safetensors {

inline constexpr std::uint64_t max_header_bytes = 100'000'000;  ///< as in the reference implementation
inline constexpr std::size_t max_string_bytes = 1 << 20;  ///< a name or a metadata value, as spelt in JSON
inline constexpr std::size_t max_rank = 64;               ///< dimensions; NumPy and PyTorch stop there too

/// What a header says.
struct Header {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Reads and checks the JSON text of a header that precedes `data_bytes` bytes of data. `path` is for
/// messages. Error: Code::file, at the first thing that is not as the format demands.
Header parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& path);

/// Exact bytes of a tensor; nothing if the product exceeds 2^63-1, dimensions of 0 left aside: they make the
/// tensor empty, not the other dimensions plausible.
std::optional<std::uint64_t> tensor_bytes(const std::vector<std::int64_t>& shape,
                                          std::uint64_t element_bytes);

/// `text` as a JSON string, quotes included; nothing if it is not UTF-8.
std::optional<std::string> json_string(const std::string& text);

}  // namespace shard::safetensors
