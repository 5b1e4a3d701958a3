#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace shard {

/// The JSON object in a file. \throws Error file when it cannot be read, is larger than 256 MiB, is no JSON
/// object, or gives a name twice in one object
nlohmann::json read_json_object(const std::string& path);

}  // namespace shard
