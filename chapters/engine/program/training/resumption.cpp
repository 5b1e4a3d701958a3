
#include "engine/program/training/resumption.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/basics/printable.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/recorded_network.hpp"

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

Records records_of(const Run& run, const std::string& precision, Index step) {
  const Training& t = run.training;
  const WorkloadKind& kind = *run.variant.workload;
  TrainingRecord record{step, {}};
  record.options = {{"--batch", fmt::to_string(t.batch)},
                    {"--seed", fmt::to_string(t.seed)},
                    {"--optimizer", t.optimizer},
                    {"--learning-rate", fmt::to_string(t.learning_rate)},
                    {"--precision", precision}};
  if (t.clip_norm) record.options["--clip-norm"] = fmt::to_string(*t.clip_norm);
  for (const OptionText& o : kind.training_options())
    if (o.is_of_data && (o.type != "FILE" || run.options.has(o.name)))
      record.options[o.name] = run.options.has(o.name) ? run.options.given(o.name) : o.initial;
  return {record_of(run.network.kind().name(), kind, run.options, SizesFrom::options), record};
}

void take_recorded_options(const CommandLine& line, TrainCommand& command) {
  const std::string& folder = command.training.resume;
  if (folder.empty()) return;
  const auto manifest = std::make_shared<Manifest>(read_manifest(folder));
  const std::string path = folder + '/' + Manifest::file_name;
  if (!manifest->training) bad_file(path, "training", "a step to go on from", "parameters alone");
  const Variant& variant = line.chapter.variant(command.variant);
  command.options = with_network_of(*manifest, folder, *variant.workload, variant.name, command.options,
                                    SizesFrom::options);
  try {
    for (const auto& [name, text] : manifest->training->options) take(line.app, name, text, folder);
  } catch (const CLI::ParseError& error) {
    bad_file(path, "training", "values of options", printable(error.what(), 200));
  }
  command.training.resumed = manifest;
}

}  // namespace shard
