#include "engine/program/parameters.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/files/file_checkpoint.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/workloads/decoder/model.hpp"

namespace shard {

std::pair<std::string, HostTensor> Parameters::as_stored(const std::string& name, HostTensor result) const {
  const auto found = stored_as.find(name);
  if (found == stored_as.end()) return {name, std::move(result)};
  return {found->second.name, found->second.is_transposed ? transposed(result) : std::move(result)};
}

namespace {

/// Prints whether the head is tied, if the files have one, and config.json or its values tie it.
void say_whether_tied(const ForeignModel& model, const ForeignNames& names) {
  const bool is_t5 = model.hyper_parameter("model_type", "") == "t5";
  const bool is_tied = !names.contains(head_name());
  const bool says_tied = model.hyper_parameter("tie_word_embeddings", is_t5 ? "true" : "false") == "true";
  if (model.parameters->contains("lm_head.weight") && (is_tied || says_tied))
    fmt::print(stderr, "{}: lm_head.weight: {}, as in transformers 5\n", one_line(model.source),
               is_tied ? "equal to the embedding, and one parameter with it"
                       : "not tied to the embedding, whose values are others, though config.json ties them");
}

}  // namespace

Parameters open_parameters(Communicator& group, const WorkloadKind& kind, const Arguments& arguments) {
  if (has_manifest(arguments.params)) {
    const Manifest manifest = read_manifest(arguments.params);
    if (!arguments.unverified) verify_digests(group, arguments.params, manifest);
    if (!has_model_config(arguments.params))
      return {open_saved(arguments.params, manifest, "model"), {}, nullptr};
  }
  std::error_code ignored;
  const auto status = std::filesystem::status(arguments.params, ignored);
  const std::string path = one_line(arguments.params);
  const bool is_folder = std::filesystem::is_directory(status);
  if (!arguments.block) {
    if (!is_folder) return {open_checkpoint(arguments.params), {}, nullptr};
    if (!kind.has_foreign_networks())
      throw Error(Code::usage, fmt::format("--params: expected a file, or a folder with --block, such as "
                                           "--block encoder.0, given the folder {} alone",
                                           path));
    ForeignModel model = open_model_folder(arguments.params);
    auto [network, names] = kind.network_of(model);
    if (group.device_id() == 0) say_whether_tied(model, names);
    return {renamed(std::move(model.parameters), names, path), names, network};
  }
  if (std::filesystem::exists(status) && !is_folder)
    throw Error(Code::usage,
                fmt::format("--block: expected with a folder that has config.json, given with {}, "
                            "which is no folder",
                            path));
  ForeignModel model = open_model_folder(arguments.params);
  ForeignNames names = kind.block_of(model, *arguments.block);
  const std::string source = fmt::format("{}: {}", path, *arguments.block);
  return {renamed(std::move(model.parameters), names, source), names, nullptr};
}

}  // namespace shard
