#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/program/recorded_network.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/decoder/mistral.hpp"
#include "engine/workloads/t5/t5.hpp"
#include "families.hpp"

namespace shard::dispatch {

namespace fs = std::filesystem;

namespace {

/// A tensor's name in files. transformers 5 joins a block's experts into two tensors, and files have one for
/// each matrix.
std::string stored_name(std::string name) {
  static const std::vector<std::array<std::string, 2>> spellings = {
      {".mlp.gate.", ".block_sparse_moe.gate."},
      {".mlp.experts.gate_up_proj", ".block_sparse_moe.experts.0.w1.weight"},
      {".mlp.experts.down_proj", ".block_sparse_moe.experts.0.w2.weight"}};
  for (const auto& [module, file] : spellings)
    if (const std::size_t at = name.find(module); at != std::string::npos)
      name.replace(at, module.size(), file);
  return name;
}

/// The type of all parameters in config.json.
std::string configured_type(const ForeignModel& model) {
  static const std::map<std::string, std::string> types = {
      {"float64", "F64"}, {"float32", "F32"}, {"float16", "F16"}, {"bfloat16", "BF16"}};
  std::string said = model.hyper_parameter("dtype", model.hyper_parameter("torch_dtype", "float32"));
  if (said.starts_with("torch.")) said.erase(0, 6);
  const auto found = types.find(said);
  if (found == types.end()) bad_file(model.source, "dtype", "float64, float32, float16 or bfloat16", said);
  return found->second;
}

void set_types(Module& module, const std::string& path, const std::map<std::string, std::string>& stored,
               const std::string& otherwise) {
  for (ModuleTensor& tensor : module.tensors) {
    if (tensor.is_buffer) {
      if (tensor.dtype.empty()) tensor.dtype = otherwise;
      continue;
    }
    const auto found = stored.find(stored_name(path_of(path, tensor.name)));
    tensor.dtype = found == stored.end() ? otherwise : found->second;
  }
  for (Module& child : module.children) set_types(child, path_of(path, child.name), stored, otherwise);
}

}  // namespace

namespace {

/// The network of a checkpoint of ours.
Network network_of_ours(const std::string& folder, const Manifest& manifest) {
  const std::string workload = manifest.network ? manifest.network->workload : "none";
  const bool is_decoder = decoder().makes(workload);
  if (!is_decoder && !t5().makes(workload))
    bad_file(folder + '/' + Manifest::file_name, "network", "a decoder or a t5", printable(workload, 60));
  const WorkloadKind& kind = is_decoder ? decoder() : t5();
  const Options options = with_network_of(manifest, folder, kind, "map", {}, SizesFrom::shapes);
  const std::shared_ptr<Workload> read = kind.read(*open_saved(folder, manifest, "model"), options);
  Network network =
      is_decoder ? decoder_network(as_decoder(*read).model()) : t5_network(as_t5(*read).model());
  set_types(network.root, "", {}, "F32");
  return network;
}

}  // namespace

Network read_network(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  if (is_folder && has_manifest(path) && !has_model_config(path))
    return network_of_ours(path, read_manifest(path));
  const bool has_parameters = is_folder && stored_in(path) != StoredIn::neither;
  const ForeignModel model =
      has_parameters ? open_model_folder(path) : read_model_config(is_folder ? path + "/config.json" : path);
  const std::string family = model.hyper_parameter("model_type", "");
  Network network = family == "gpt2" ? gpt2_network(model)
                    : family == "t5" ? t5_network(t5_model(model, Reading::sizes))
                                     : decoder_network(mistral_model(model, Reading::sizes), family);
  std::map<std::string, std::string> types;
  if (has_parameters) types = stored_types(path);
  for (const std::vector<std::string>& group : network.tied)  // files may keep any of their names
    for (const std::string& stored : group)
      if (const auto found = types.find(stored); found != types.end())
        for (const std::string& other : group) types.try_emplace(other, found->second);
  set_types(network.root, "", types, configured_type(model));
  return network;
}

}  // namespace shard::dispatch
