#include "engine/program/commands/with_parameters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <iostream>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/files/safetensors/writer.hpp"
#include "engine/layers/tokens/language_model.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/commands/rows.hpp"
#include "engine/program/recorded_network.hpp"
#include "engine/program/step/step.hpp"

namespace shard {

namespace {

/// What follows is what a record has of a command.
void begin_section(ShardedEngine& engine, const char* name) {
  note_parameters(engine);
  note_section(name, true);
}

/// \throws Error usage
std::vector<Index> prompt_of(const Workload& network, const GenerateCommand& command) {
  if (command.ids.empty() == command.text.empty())
    throw Error(Code::usage, "generate: expected --ids or --text, given {}",
                command.ids.empty() ? "neither" : "both");
  if (command.ids.empty()) return network.tokens().tokens_of(command.text);
  const auto numbers = numbers_in(command.ids, [](Index) { return true; });
  if (!numbers)
    throw Error(Code::usage, "--ids: expected tokens separated by commas, given '{}'",
                printable(command.ids, 60));
  return *numbers;
}

/// \throws Error argument where the engine has returned others than the network's gradients
void require_all_of(const Workload& network, const Gradients& result) {
  std::set<std::string> wanted;
  for (const Parameter& p : network.parameters()) wanted.insert(p.name);
  if (!network.kind().has_tokens()) wanted.insert(Gradients::input_grad);
  for (const std::string& name : wanted)
    if (!result.contains(name)) refuse(Code::argument, "gradients", "one of each name", "none for " + name);
  for (const auto& [name, gradient] : result)
    if (!wanted.contains(name))
      refuse(Code::argument, "gradients", fmt::format("those of {}", fmt::join(wanted, ", ")), name);
}

}  // namespace

void SaveCommand::add_options(const CommandLine& line) {
  add_engine_options(line, *this);
  add_parameters(line, params);
  add_saving(line, "--out", "The folder to write; its other files are kept", out, form);
  line.app.get_option("--out")->required();
  add_record(line, *this);
}

int SaveCommand::run(Communicator& group, const Chapter& chapter) const {
  const Variant& chosen = chapter.variant(variant);
  Opened read = opened(group, chosen, options, params);
  const ForeignNames& stored_as = read.params.stored_as;
  if (!stored_as.empty() && form.format == "distributed")
    throw Error(
        Code::usage,
        "--format: expected gathered or sharded for a folder of another library's, given distributed");
  read.load(group, chosen);
  SavedTensors saved{"model", read.engine->trainable(), {}, stored_as};
  for (const Parameter& p : read.network->parameters()) saved.order.push_back(p.name);
  if (!stored_as.empty()) saved.types = stored_types(params.path);
  Records records;  // another library's config.json goes with its parameters
  if (stored_as.empty())
    records.network =
        record_of(read.network->kind().name(), *chosen.workload, read.params.options, SizesFrom::shapes);
  begin_section(*read.engine, "save");
  save_checkpoint(group, out, form, {saved}, records, stored_as.empty() ? "" : params.path);
  return 0;
}

void GradientsCommand::add_options(const CommandLine& line) {
  add_engine_options(line, *this);
  add_parameters(line, params);
  add(line.app, "--batch", "FILE", batch, "safetensors file with input and output_grad", path())->required();
  add(line.app, "--out", "FILE", out, "safetensors file to write", path())->required();
  add_record(line, *this);
}

int GradientsCommand::run(Communicator& group, const Chapter& chapter) const {
  if (group.device_id() == 0) require_replaceable(out);
  const Variant& chosen = chapter.variant(variant);
  Opened read = opened(group, chosen, options, params);
  const std::unique_ptr<GivenBatch> given =
      read.network->given_batch(open_checkpoint(batch), [&](Index width) {
        const std::string hint = read.params.input_hint(*read.network, width);
        return hint.empty() ? "" : fmt::format("{}: {}", read.params.checkpoint->source(), hint);
      });
  read.load(group, chosen);
  ShardedEngine& engine = *read.engine;
  engine.want_input_grad(true);
  given->watch(engine);
  begin_section(engine, "gradients");
  Gradients result = gradients_of_batch(
      engine, given->input(engine.input_rows(given->rows())),
      [&](const Tensor& output, Index first_row) { return given->output_grad(output, first_row); });
  note_section("results", false);
  require_all_of(*read.network, result);
  std::map<std::string, HostTensor> whole = given->results(group);
  for (auto& [name, gradient] : result) {
    Tensor t = engine.whole(std::move(gradient));
    whole.insert(read.params.as_stored(name, {t.shape(), t.to_host()}));
  }
  if (group.device_id() == 0) write_safetensors(out, whole);
  return 0;
}

void InferCommand::add_options(const CommandLine& line) {
  add_engine_options(line, *this);
  add_parameters(line, params);
  add_rows(line, batch, "Rows that go through the network together");
  add_record(line, *this);
}

void InferCommand::complete(const CommandLine& line) {
  take_usual(line, *this, "--batch", &TrainingDefaults::batch, batch);
  Command::complete(line);
}

int InferCommand::run(Communicator& group, const Chapter& chapter) const {
  return run_with(group, chapter.variant(variant));
}

int InferCommand::run_with(Communicator& group, const Variant& chosen) const {
  Opened read = opened(group, chosen, options, params);
  read.load(group, chosen);
  const Workload& network = *read.network;
  const Streams streams =
      network.kind().has_tokens()
          ? rows_of_tokens(std::cin, network, batch)
          : rows_of_numbers(std::cin, network.input_shape(1).at(1), batch,
                            [&](Index width) { return read.params.input_hint(network, width); });
  begin_section(*read.engine, "inference");
  read.engine->inference_loop(*streams.input, *streams.output);
  if (group.device_id() == 0 && std::ferror(stdin) != 0)
    throw Error(Code::file, "standard input: expected rows of numbers, given an error of the system");
  return 0;
}

void GenerateCommand::add_options(const CommandLine& line) {
  add_engine_options(line, *this);
  add_parameters(line, params);
  line.app.add_option("--ids", ids, "The prompt: tokens, such as 5,17,2")->type_name("LIST");
  line.app.add_option("--text", text, "The prompt of a network of characters, whose text is --data")
      ->type_name("TEXT");
  add(line.app, "--tokens", "N", tokens, "How many to write, unless one ends the sequence (eos_token_id)",
      positive())
      ->capture_default_str();
  add_record(line, *this);
}

int GenerateCommand::run(Communicator& group, const Chapter& chapter) const {
  return run_with(group, chapter.variant(variant));
}

int GenerateCommand::run_with(Communicator& group, const Variant& chosen) const {
  if (!chosen.workload->has_tokens())
    throw Error(Code::usage, "generate: expected a variant that goes on with a prompt, given {}",
                chosen.name);
  Opened read = opened(group, chosen, options, params);
  const std::vector<Index> prompt = prompt_of(*read.network, *this);
  if (const std::string why = read.network->tokens().why_no_sequence(prompt, tokens); !why.empty())
    throw Error(Code::usage, "generate: " + why);
  read.load(group, chosen);
  begin_section(*read.engine, "tokens");
  const std::vector<Index> generated =
      generate_greedily(dynamic_cast<LanguageModel&>(*read.engine), read.network->tokens().prompt_of(prompt),
                        tokens, read.params.foreign ? end_tokens(params.path) : std::vector<Index>());
  if (group.device_id() != 0) return 0;
  if (text.empty())
    fmt::print("{}\n", fmt::join(generated, ","));
  else
    fmt::print("{}{}\n", text, read.network->tokens().text_of(generated));
  return 0;
}

}  // namespace shard
