#pragma once

/// The networks whose trees of modules are known here: Mistral, Mixtral and T5, as transformers 5.23 builds
/// them.

#include <map>

#include "engine/dispatch/module_tree.hpp"
#include "engine/workloads/decoder_model.hpp"
#include "engine/workloads/t5_model.hpp"

namespace shard::dispatch {

/// A Mistral, or a Mixtral if it has experts.
Network decoder_network(const DecoderModel& model);
Network t5_network(const T5Model& model);

/// The network of a folder with config.json, or of such a file alone. With files of parameters beside it, the
/// types of elements are those of the files' headers; otherwise the one that config.json names.
/// \throws Error file as the reader of chapter 08 does, and for another family
Network read_network(const std::string& path);
/// The types of all tensors of a folder's files, as their headers say. \throws Error file
std::map<std::string, std::string> stored_types(const std::string& folder);

}  // namespace shard::dispatch
