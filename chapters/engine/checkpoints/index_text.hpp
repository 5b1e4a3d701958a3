#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shard {

/// The text of an index, as huggingface_hub 2.4 writes it: tensors file by file. `metadata` is a JSON object;
/// the index has its members and the total size in bytes.
std::string index_text(const std::string& metadata, const std::string& stem,
                       const std::vector<std::vector<std::string>>& files, std::uint64_t total);

}  // namespace shard
