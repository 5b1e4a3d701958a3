#include "engine/program/commands/parameters.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "engine/basics/printable.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/recorded_network.hpp"
#include "engine/weights/foreign_config.hpp"
#include "engine/workloads/decoder/model.hpp"

namespace shard {

namespace {

/// Prints whether the head is tied, if the files have one, and config.json or its values tie it.
void say_whether_tied(const ForeignModel& model, const ForeignNames& names) {
  const bool is_tied = !names.contains(head_name());
  const bool ties = defaults_of_family(model.hyper_parameter("model_type", "")).ties_the_head;
  const bool says_tied = model.hyper_parameter("tie_word_embeddings", ties ? "true" : "false") == "true";
  if (model.parameters->contains("lm_head.weight") && (is_tied || says_tied))
    fmt::print(stderr, "{}: lm_head.weight: {}, as in transformers 5\n", one_line(model.source),
               is_tied ? "equal to the embedding, and one parameter with it"
                       : "not tied to the embedding, whose values are others, though config.json ties them");
}

/// The folder of the checkpoint of ours that --params names, or one of whose files it names; else nothing.
std::optional<std::string> checkpoint_of(const std::string& params) {
  if (has_manifest(params)) return has_model_config(params) ? std::nullopt : std::optional(params);
  const std::filesystem::path file(params);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(file, ignored);
  if (!is_file || !has_manifest(folder) || has_model_config(folder)) return std::nullopt;
  return read_manifest(folder).digests.contains(file.filename().string()) ? std::optional(folder)
                                                                          : std::nullopt;
}

/// The options given, and those of the network of the checkpoint that --params names. \throws Error usage, file
Options options_of(const Variant& variant, const Options& options, const ParametersGiven& given) {
  const std::optional<std::string> folder = checkpoint_of(given.path);
  if (!folder || given.block) return options;
  return with_network_of(read_manifest(*folder), *folder, *variant.workload, variant.name, options,
                         SizesFrom::shapes);
}

}  // namespace

void add_parameters(const CommandLine& line, ParametersGiven& given) {
  add(line.app, "--params", "FILE", given.path, line.chapter.variants.front().workload->parameters_help(),
      path())
      ->required();
  add_verification(line, given.unverified);
  line.app
      .add_option("--block", given.block, "Which block of the folder that --params names, such as encoder.0")
      ->type_name("NAME");
}

std::shared_ptr<Workload> Parameters::network_of(const WorkloadKind& kind) const {
  return foreign ? foreign : kind.read(*checkpoint, options);
}

std::pair<std::string, HostTensor> Parameters::as_stored(const std::string& name, HostTensor result) const {
  const auto found = stored_as.find(name);
  if (found == stored_as.end()) return {name, std::move(result)};
  if (found->second.is_transposed) return {found->second.name, transposed(result)};
  return {found->second.name, {found->second.stored_shape(result.shape), std::move(result.values)}};
}

std::string Parameters::input_hint(const Workload& network, Index width) const {
  return stored_as.empty() ? network.input_hint(width) : "";
}

Parameters open_parameters(Communicator& group, const Variant& variant, const Options& options_given,
                           const ParametersGiven& given) {
  const WorkloadKind& kind = *variant.workload;
  const Options options = options_of(variant, options_given, given);
  if (has_manifest(given.path)) {
    const Manifest manifest = read_manifest(given.path);
    if (!given.unverified) verify_digests(group, given.path, manifest);
    if (given.unverified && group.device_id() == 0) say_not_verified(given.path, manifest);
    if (!has_model_config(given.path))
      return {open_saved(given.path, manifest, "model"), {}, nullptr, options};
  }
  std::error_code ignored;
  const auto status = std::filesystem::status(given.path, ignored);
  const std::string path = one_line(given.path);
  const bool is_folder = std::filesystem::is_directory(status);
  if (!given.block) {
    if (!is_folder) return {open_checkpoint(given.path), {}, nullptr, options};
    if (!kind.has_foreign_networks())
      throw Error(Code::usage,
                  "--params: expected a file, or a folder with --block, such as --block encoder.0, given the "
                  "folder {} alone",
                  path);
    ForeignModel model = open_model_folder(given.path);
    const auto [network, names] = kind.network_of(model);
    if (group.device_id() == 0) say_whether_tied(model, names);
    return {renamed(std::move(model.parameters), names, path), names, network, options};
  }
  if (std::filesystem::exists(status) && !is_folder)
    throw Error(Code::usage,
                "--block: expected with a folder that has config.json, given with {}, which is no folder",
                path);
  ForeignModel model = open_model_folder(given.path);
  ForeignNames names = kind.block_of(model, *given.block);
  const std::string source = fmt::format("{}: {}", path, *given.block);
  return {renamed(std::move(model.parameters), names, source), names, nullptr, options};
}

void Opened::load(Communicator& group, const Variant& variant) {
  engine = variant.make(group, *network, params.options);
  engine->load_checkpoint(*params.checkpoint);
}

Opened opened(Communicator& group, const Variant& variant, const Options& options,
              const ParametersGiven& given) {
  Parameters params = open_parameters(group, variant, options, given);
  std::shared_ptr<Workload> network = params.network_of(*variant.workload);
  if (variant.require) variant.require(group.num_devices(), *network, params.options);
  return {std::move(params), std::move(network)};
}

}  // namespace shard
