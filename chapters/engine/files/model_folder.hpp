#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/foreign_model.hpp"

namespace shard {

/// The index of a network in several files, in the format of Hugging Face's library.
struct TensorIndex {
  static constexpr const char* file_name = "model.safetensors.index.json";

  std::map<std::string, std::string> file_of;  ///< `weight_map`: the file of each tensor, in the same folder
  std::string metadata = "{}";                 ///< the other members: a JSON object
};

/// Whether a path in an index is a file's, inside the folder.
bool is_inside(const std::string& file);

/// Parses an index; `path` is the file's name in messages. \throws Error file when it is malformed, or names
/// a path outside its folder
TensorIndex parse_tensor_index(std::string_view text, const std::string& path);
/// Parses a file. \throws Error file also when it cannot be read
TensorIndex read_tensor_index(const std::string& path);

/// Whether a folder has a config.json.
bool has_model_config(const std::string& folder);
/// Where a folder has the tensors of a stem. Every reader takes the file STEM.safetensors before the files that
/// STEM.safetensors.index.json lists, as Hugging Face's library does.
enum class StoredIn { one_file, indexed_files, neither };
StoredIn stored_in(const std::string& folder, const std::string& stem = "model");
/// \throws Error file: a folder has neither, but these files
[[noreturn]] void refuse_without_parameters(const std::string& folder, const std::string& stem = "model");
/// The tensors of a folder's file STEM.safetensors, or of the files that STEM.safetensors.index.json lists.
/// \throws Error file
std::unique_ptr<Checkpoint> open_stored(const std::string& folder, const std::string& stem = "model");

/// A network as Hugging Face's `save_pretrained` writes it: a folder with config.json and model.safetensors,
/// or, without that, model.safetensors.index.json, whose `weight_map` says in which file each tensor is.
///
/// A file is opened when one of its tensors is read for the first time; other files may be missing. A tensor
/// that the index does not list is found if a file has it, as in Hugging Face's library; this search opens
/// all files. Unlike there, a tensor must be in the file that the index names, and no name may occur twice.
///
/// A file may be a symbolic link to anywhere, since the hub's cache is made of them. But the index may name
/// no path that leads out of the folder.
/// \throws Error file when config.json or the index cannot be read or is malformed; the parameters likewise
ForeignModel open_model_folder(const std::string& path);

/// The types of all tensors in a folder's files, from their headers. \throws Error file
std::map<std::string, std::string> stored_types(const std::string& folder);

/// The tokens that end a sequence: `eos_token_id` of the folder's generation_config.json or, without that
/// file, of its config.json, or the default of the network's family. None if it is null. \throws Error file
std::vector<Index> end_tokens(const std::string& folder);

/// Reads a config.json alone: the result has no parameters. \throws Error file
ForeignModel read_model_config(const std::string& path);
/// Parses the text of a config.json; `path` is the file's name in messages. \throws Error file
ForeignModel parse_model_config(std::string_view text, const std::string& path);

}  // namespace shard
