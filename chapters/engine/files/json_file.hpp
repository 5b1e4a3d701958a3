#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace shard {

/// The JSON object of a text; `path` is its file's, for messages. Stricter than JSON, so that what reads the
/// object needs no stack or memory without bounds: at most 100 levels deep, and at most 2^22 values.
/// \throws Error file when the text is no JSON object, or gives a name twice in one object
nlohmann::json parse_json_object(std::string_view text, const std::string& path);
/// The same of a file. \throws Error file also when it cannot be read, or is larger than 256 MiB
nlohmann::json read_json_object(const std::string& path);

}  // namespace shard
