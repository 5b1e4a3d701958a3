#pragma once

/// Distributes tensors over the files of a checkpoint that is divided by size.

#include <cstdint>
#include <string>
#include <vector>

namespace shard {

struct NamedSize {
  std::string name;
  std::uint64_t bytes;
};

/// Sorts tensors as `save_pretrained` of transformers 5.24 does: by the parts between dots, numbers by their
/// value. The matrices of all experts of a Mixtral's block count as two tensors.
void sort_for_files(std::vector<NamedSize>& tensors);

/// The names of each file's tensors, in order. Files are filled one after the other, up to `most` bytes. A
/// tensor that is larger than `most` gets a file of its own, before the file that is being filled. These are
/// the rules of huggingface_hub 2.4, `split_state_dict_into_shards_factory`.
std::vector<std::vector<std::string>> split_by_size(const std::vector<NamedSize>& tensors,
                                                    std::uint64_t most);

/// "model-00002-of-00005.safetensors", with `file` counted from 0; "model.safetensors" for one file.
std::string shard_file_name(const std::string& stem, std::size_t file, std::size_t files);
/// "model-device-00002-of-00004.safetensors": the file that a device writes.
std::string device_file_name(const std::string& stem, int device, int devices);
/// Whether a name is that of such a file for "model" or "optimizer", of its index, or of a manifest.
bool is_checkpoint_file(const std::string& name);

/// The text of an index, as huggingface_hub 2.4 writes it: tensors file by file. `metadata` is a JSON object;
/// the index has its members and the total size in bytes.
std::string index_text(const std::string& metadata, const std::string& stem,
                       const std::vector<std::vector<std::string>>& files, std::uint64_t total);

/// The number of bytes of "2GB", "512MB", "1.5GB", "64KiB" or a plain number. \throws Error usage
std::uint64_t parse_size(const std::string& option, const std::string& text);

}  // namespace shard
