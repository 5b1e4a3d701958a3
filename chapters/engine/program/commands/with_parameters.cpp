#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/checkpoints/save.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/files/safetensors/writer.hpp"
#include "engine/layers/tokens/language_model.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/commands/rows.hpp"
#include "engine/program/recorded_network.hpp"
#include "engine/program/training/step.hpp"
#include "engine/workloads/decoder/model.hpp"

namespace shard {

namespace {

/// The parameters that --params and --block name.
struct Parameters {
  std::unique_ptr<Checkpoint> checkpoint;  ///< under our names, in our shapes
  ForeignNames stored_as;                  ///< the stored names that differ from ours
  std::shared_ptr<Workload> foreign;       ///< the network, if another library's folder describes it
  Options options;                         ///< those given, and those of the network of a checkpoint of ours

  /// The network that has these parameters. \throws Error file
  std::shared_ptr<Workload> network_of(const WorkloadKind& kind) const {
    return foreign ? foreign : kind.read(*checkpoint, options);
  }

  /// A result under the stored name of its parameter, and in the stored shape.
  std::pair<std::string, HostTensor> as_stored(const std::string& name, HostTensor result) const {
    const auto found = stored_as.find(name);
    if (found == stored_as.end()) return {name, std::move(result)};
    if (found->second.is_transposed) return {found->second.name, transposed(result)};
    return {found->second.name, {found->second.stored_shape(result.shape), std::move(result.values)}};
  }
  /// The network's hint about an input of this width. Empty where parameters were transposed when they were
  /// read: then their shapes are right.
  std::string input_hint(const Workload& network, Index width) const {
    return stored_as.empty() ? network.input_hint(width) : "";
  }
};

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
Options options_of(const Variant& variant, const Arguments& arguments) {
  const std::optional<std::string> folder = checkpoint_of(arguments.params);
  if (!folder || arguments.block) return arguments.options;
  return with_network_of(read_manifest(*folder), *folder, *variant.workload, variant.name, arguments.options,
                         SizesFrom::shapes);
}

/// Opens a file, or a folder of another library with a whole network, or one block of it. \throws Error file
/// when they cannot be read; usage when a chapter that reads blocks gets a folder without a block, or a block
/// without a folder
Parameters open_parameters(Communicator& group, const Variant& variant, const Arguments& arguments) {
  const WorkloadKind& kind = *variant.workload;
  const Options options = options_of(variant, arguments);
  if (has_manifest(arguments.params)) {
    const Manifest manifest = read_manifest(arguments.params);
    if (!arguments.unverified) verify_digests(group, arguments.params, manifest);
    if (arguments.unverified && group.device_id() == 0) say_not_verified(arguments.params, manifest);
    if (!has_model_config(arguments.params))
      return {open_saved(arguments.params, manifest, "model"), {}, nullptr, options};
  }
  std::error_code ignored;
  const auto status = std::filesystem::status(arguments.params, ignored);
  const std::string path = one_line(arguments.params);
  const bool is_folder = std::filesystem::is_directory(status);
  if (!arguments.block) {
    if (!is_folder) return {open_checkpoint(arguments.params), {}, nullptr, options};
    if (!kind.has_foreign_networks())
      throw Error(Code::usage,
                  "--params: expected a file, or a folder with --block, such as --block encoder.0, given the "
                  "folder {} alone",
                  path);
    ForeignModel model = open_model_folder(arguments.params);
    const auto [network, names] = kind.network_of(model);
    if (group.device_id() == 0) say_whether_tied(model, names);
    return {renamed(std::move(model.parameters), names, path), names, network, options};
  }
  if (std::filesystem::exists(status) && !is_folder)
    throw Error(Code::usage,
                "--block: expected with a folder that has config.json, given with {}, which is no folder",
                path);
  ForeignModel model = open_model_folder(arguments.params);
  ForeignNames names = kind.block_of(model, *arguments.block);
  const std::string source = fmt::format("{}: {}", path, *arguments.block);
  return {renamed(std::move(model.parameters), names, source), names, nullptr, options};
}

}  // namespace

namespace {

/// What follows is what a record has of a command.
void begin_section(ShardedEngine& engine, const char* name) {
  note_parameters(engine);
  note_section(name, true);
}

}  // namespace

int save(Communicator& group, const Variant& variant, const Arguments& arguments) {
  const Parameters params = open_parameters(group, variant, arguments);
  if (!params.stored_as.empty() && arguments.form.format == "distributed")
    throw Error(
        Code::usage,
        "--format: expected gathered or sharded for a folder of another library's, given distributed");
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload);
  if (variant.require) variant.require(group.num_devices(), *network, params.options);
  const std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, params.options);
  engine->load_checkpoint(*params.checkpoint);
  SavedTensors saved{"model", engine->trainable(), {}, params.stored_as};
  for (const Parameter& p : network->parameters()) saved.order.push_back(p.name);
  if (!params.stored_as.empty()) saved.types = stored_types(arguments.params);
  Records records;  // another library's config.json goes with its parameters
  if (params.stored_as.empty())
    records.network = record_of(network->kind().name(), *variant.workload, params.options, SizesFrom::shapes);
  begin_section(*engine, "save");
  save_checkpoint(group, arguments.save, arguments.form, {saved}, records,
                  params.stored_as.empty() ? "" : arguments.params);
  return 0;
}

int gradients(Communicator& group, const Variant& variant, const Arguments& arguments) {
  if (group.device_id() == 0) require_replaceable(arguments.out);
  const Parameters params = open_parameters(group, variant, arguments);
  std::unique_ptr<Checkpoint> file = open_checkpoint(arguments.batch_file);
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload);
  if (variant.require) variant.require(group.num_devices(), *network, params.options);
  const std::unique_ptr<GivenBatch> batch = network->given_batch(std::move(file), [&](Index width) {
    const std::string hint = params.input_hint(*network, width);
    return hint.empty() ? "" : fmt::format("{}: {}", params.checkpoint->source(), hint);
  });

  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, params.options);
  engine->load_checkpoint(*params.checkpoint);
  engine->want_input_grad(true);
  batch->watch(*engine);
  begin_section(*engine, "gradients");
  Gradients result = gradients_of_batch(
      *engine, batch->input(engine->input_rows(batch->rows())),
      [&](const Tensor& out, Index first_row) { return batch->output_grad(out, first_row); });
  note_section("results", false);

  std::set<std::string> wanted;
  for (const Parameter& p : network->parameters()) wanted.insert(p.name);
  if (!network->kind().has_tokens()) wanted.insert(Gradients::input_grad);
  for (const std::string& name : wanted)
    if (!result.contains(name)) refuse(Code::argument, "gradients", "one of each name", "none for " + name);
  for (const auto& [name, gradient] : result)
    if (!wanted.contains(name))
      refuse(Code::argument, "gradients", fmt::format("those of {}", fmt::join(wanted, ", ")), name);

  std::map<std::string, HostTensor> whole = batch->results(group);
  for (auto& [name, gradient] : result) {
    Tensor t = engine->whole(std::move(gradient));
    whole.insert(params.as_stored(name, {t.shape(), t.to_host()}));
  }
  if (group.device_id() == 0) write_safetensors(arguments.out, whole);
  return 0;
}

int infer(Communicator& group, const Variant& variant, const Arguments& arguments) {
  const Parameters params = open_parameters(group, variant, arguments);
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload);
  if (variant.require) variant.require(group.num_devices(), *network, params.options);
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, params.options);
  engine->load_checkpoint(*params.checkpoint);
  const Streams streams =
      network->kind().has_tokens()
          ? rows_of_tokens(std::cin, *network, arguments.batch)
          : rows_of_numbers(std::cin, network->input_shape(1).at(1), arguments.batch,
                            [&](Index width) { return params.input_hint(*network, width); });
  begin_section(*engine, "inference");
  engine->inference_loop(*streams.input, *streams.output);
  if (group.device_id() == 0 && std::ferror(stdin) != 0)
    throw Error(Code::file, "standard input: expected rows of numbers, given an error of the system");
  return 0;
}

namespace {

/// \throws Error usage
std::vector<Index> prompt_of(const Workload& network, const Arguments& arguments) {
  if (arguments.ids.empty() == arguments.text.empty())
    throw Error(Code::usage, "generate: expected --ids or --text, given {}",
                arguments.ids.empty() ? "neither" : "both");
  if (arguments.ids.empty()) return network.tokens_of(arguments.text);
  const auto ids = numbers_in(arguments.ids, [](Index) { return true; });
  if (!ids)
    throw Error(Code::usage, "--ids: expected tokens separated by commas, given '{}'",
                printable(arguments.ids, 60));
  return *ids;
}

}  // namespace

int generate(Communicator& group, const Variant& variant, const Arguments& arguments) {
  if (!variant.workload->has_tokens())
    throw Error(Code::usage, "generate: expected a variant that goes on with a prompt, given {}",
                variant.name);
  const Parameters params = open_parameters(group, variant, arguments);
  const std::shared_ptr<Workload> network = params.network_of(*variant.workload);
  if (variant.require) variant.require(group.num_devices(), *network, params.options);
  const std::vector<Index> prompt = prompt_of(*network, arguments);
  if (const std::string why = network->why_no_sequence(prompt, arguments.tokens); !why.empty())
    throw Error(Code::usage, "generate: " + why);
  std::unique_ptr<ShardedEngine> engine = variant.make(group, *network, params.options);
  engine->load_checkpoint(*params.checkpoint);
  begin_section(*engine, "tokens");
  const std::vector<Index> generated =
      generate_greedily(dynamic_cast<LanguageModel&>(*engine), network->prompt_of(prompt), arguments.tokens,
                        params.foreign ? end_tokens(arguments.params) : std::vector<Index>());
  if (group.device_id() != 0) return 0;
  if (arguments.text.empty())
    fmt::print("{}\n", fmt::join(generated, ","));
  else
    fmt::print("{}{}\n", arguments.text, network->text_of(generated));
  return 0;
}

}  // namespace shard
