
#include <fmt/format.h>

#include <algorithm>

#include "engine/basics/printable.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/recorded_network.hpp"
#include "engine/program/training/step.hpp"

namespace shard {

namespace {

/// Whether a resumed run may change this option.
bool may_change(const std::string& option) {
  const std::vector<std::string> changeable = {"--batch", "--learning-rate", "--clip-norm", "--precision",
                                               "--data"};
  return std::ranges::find(changeable, option) != changeable.end();
}

void take(CLI::App& command, const std::string& name, const std::string& text, const std::string& folder) {
  CLI::Option* option = command.get_option_no_throw(name);
  if (option == nullptr)
    bad_file(folder + '/' + Manifest::file_name, "training", "options of train", printable(name));
  if (option->count() == 0) {
    option->add_result(text);
    option->run_callback();
  } else if (const std::string& given = option->results().front();
             !is_same_value(given, text) && !may_change(name)) {
    throw Error(Code::usage, "{}: expected {}, as in {}, given {}", name, printable(text), one_line(folder),
                printable(given));
  }
}

}  // namespace

Records records_of(const Run& run, Index step) {
  const Arguments& a = run.arguments;
  const WorkloadKind& kind = *run.variant.workload;
  TrainingRecord record{step, {}};
  record.options = {{"--batch", fmt::to_string(a.batch)},
                    {"--seed", fmt::to_string(a.seed)},
                    {"--optimizer", a.optimizer},
                    {"--learning-rate", fmt::to_string(a.learning_rate)},
                    {"--precision", a.precision}};
  if (a.clip_norm) record.options["--clip-norm"] = fmt::to_string(*a.clip_norm);
  for (const OptionText& o : kind.training_options())
    if (o.is_of_data && (o.type != "FILE" || a.options.has(o.name)))
      record.options[o.name] = a.options.has(o.name) ? a.options.given(o.name) : o.initial;
  return {record_of(run.network.kind().name(), kind, a.options, SizesFrom::options), record};
}

void take_recorded_options(CLI::App& command, const Chapter& chapter, Arguments& arguments) {
  if (arguments.resume.empty()) return;
  const auto manifest = std::make_shared<Manifest>(read_manifest(arguments.resume));
  const std::string path = arguments.resume + '/' + Manifest::file_name;
  if (!manifest->training) bad_file(path, "training", "a step to go on from", "parameters alone");
  const Variant& variant = chapter.variant(arguments.variant);
  arguments.options = with_network_of(*manifest, arguments.resume, *variant.workload, variant.name,
                                      arguments.options, SizesFrom::options);
  try {
    for (const auto& [name, text] : manifest->training->options) take(command, name, text, arguments.resume);
  } catch (const CLI::ParseError& error) {
    bad_file(path, "training", "values of options", printable(error.what(), 200));
  }
  arguments.resumed = manifest;
}

}  // namespace shard
