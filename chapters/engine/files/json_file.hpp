#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace shard {

/// Parses a JSON object; `path` is the file's name in messages. At most 100 levels and 2^22 values, so that a
/// reader of the object needs bounded stack and memory. \throws Error file when the text is no JSON object,
/// or an object has the same name twice
nlohmann::json parse_json_object(std::string_view text, const std::string& path);
/// Parses a file. \throws Error file also when it cannot be read, or is larger than 256 MiB
nlohmann::json read_json_object(const std::string& path);

}  // namespace shard
