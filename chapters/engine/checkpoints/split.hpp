#pragma once

/// Which tensor goes into which file of a checkpoint that is divided by size.

#include <cstdint>
#include <string>
#include <vector>

namespace shard {

struct NamedSize {
  std::string name;
  std::uint64_t bytes;
};

/// Sorts tensors as `save_pretrained` of transformers 5.24 sorts those of a network that it has read: part by part
/// between dots, numbers by their value. It has the experts' matrices of a Mixtral's block as two tensors.
void sort_for_files(std::vector<NamedSize>& tensors);

/// The names of each file's tensors, in order. Files are filled one after the other, and none has more than
/// `most` bytes, except for a tensor that is larger by itself: it gets a file of its own, before the one that
/// was being filled. These are the rules of Hugging Face's huggingface_hub 2.4,
/// `split_state_dict_into_shards_factory`.
std::vector<std::vector<std::string>> split_by_size(const std::vector<NamedSize>& tensors,
                                                    std::uint64_t most);

/// "model-00002-of-00005.safetensors", counted from 0; "model.safetensors" where there is one.
std::string shard_file_name(const std::string& stem, std::size_t file, std::size_t files);
/// "model-device-00002-of-00004.safetensors": what a device has written.
std::string device_file_name(const std::string& stem, int device, int devices);
/// Whether a name is one of these for "model" or "optimizer", or that of their index or of a manifest.
bool is_checkpoint_file(const std::string& name);

/// "2GB", "512MB", "1.5GB", "64KiB" or a number of bytes. \throws Error usage
std::uint64_t parse_size(const std::string& option, const std::string& text);

}  // namespace shard
