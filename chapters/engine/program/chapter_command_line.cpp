/// The command line that all chapters share.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "engine/basics/near_names.hpp"
#include "engine/basics/printable.hpp"
#include "engine/device/books/memory.hpp"
#include "engine/device/communicator/checked_communicator.hpp"
#include "engine/device/communicator/fault.hpp"
#include "engine/program/command_line.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/training/step.hpp"
#include "engine/record/recording.hpp"

namespace shard {

namespace {

/// Inserts `train`, the default command, where the words name none.
std::vector<std::string> with_command(std::vector<std::string> words) {
  bool has_command = !words.empty() && (words[0].empty() || words[0][0] != '-');
  bool asks_for_help = !words.empty() && (words[0] == "--help" || words[0] == "-h");
  if (!has_command && !asks_for_help) words.insert(words.begin(), "train");
  return words;
}

/// The options of a command that an unknown one may stand for: by its letters, or as other programs call it.
std::string option_meant(const CLI::App& command, const std::string& unknown) {
  static const std::map<std::string, std::string> elsewhere{
      {"--dtype", "--precision"},
      {"--lr", "--learning-rate"},
      {"--epochs", "--steps"},
      {"--batch-size", "--batch"},
      {"--seq-len", "--length"},
      {"--hidden-size", "--hidden-dim"},
      {"--num-layers", "--layers"},
      {"--prompt", "--text"},
      {"--output", "--out"},
      {"--checkpoint", "--resume"},
      {"--weights", "--params"},
      {"--model", "--params"},
      {"--gradient-accumulation-steps", "--micro-batches"}};
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const auto found = elsewhere.find(unknown);
  if (found != elsewhere.end() && std::ranges::find(names, found->second) != names.end())
    return ": did you mean " + found->second + '?';
  return did_you_mean(unknown, names);
}

/// The message for a mistake on the command line: CLI11's own, or a plainer one.
std::string explain(const CLI::App& app, const std::string& command, const CLI::ParseError& error) {
  std::string what = error.what();
  const std::vector<std::string> unknown = app.remaining(true);
  const bool lacks_option = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !unknown.empty();
  if (lacks_option || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return fmt::format("expected an option of {}, given {}{}", command, shown(unknown.front()),
                       option_meant(*app.get_subcommands().front(), unknown.front()));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return what.substr(0, what.find(':')) + ": expected one value, given none or several";
  return what;
}

/// Options of the first network, from the default size on, that all of these variants accept with their
/// default options. Given options stay. Returns `given` if 64 networks are too few.
Options first_accepted(int devices, const std::vector<const Variant*>& variants, const Options& given) {
  constexpr int reach = 64;
  const WorkloadKind& kind = *variants.front()->workload;
  Options options = given;
  for (int i = 0; i < reach; ++i) {
    const std::shared_ptr<Workload> network = kind.make(options);
    auto accepts = [&](const Variant* v) {
      return v->workload->name() != kind.name() || v->accepts(devices, *network, Options());
    };
    if (std::ranges::all_of(variants, accepts)) return options;
    if (!kind.deepen(options, given)) break;
  }
  return given;
}

/// The options without those that say how something is divided, as `--stages 1,2,3` does. These do not decide
/// how much there is to divide.
Options without_divisions(const Variant& variant, const Options& options) {
  Options others;
  for (const std::string& name : options.names())
    if (const auto declared = variant.declared(name); !declared || declared->type != "HOW")
      others.set(name, options.given(name));
  return others;
}

/// Options of a network that all variants accept, so that their curves can be compared, or at least this one.
Options with_default_network(int devices, const Chapter& chapter, const Variant& variant,
                             const Options& given) {
  std::vector<const Variant*> all = {&variant};
  for (const Variant& v : chapter.variants)
    if (!v.is_deeper) all.push_back(&v);
  Options options = first_accepted(devices, all, given);
  auto accepts = [&] {
    return variant.accepts(devices, *variant.workload->make(options), without_divisions(variant, options));
  };
  for (int i = 0; i < 64 && !accepts(); ++i)
    if (!variant.workload->deepen(options, given)) break;
  return options;
}

/// \throws Error usage when this variant does not take a given option, or its value
void require_options_of(const Chapter& chapter, const Variant& variant, const Options& given) {
  for (const std::string& name : given.names()) {
    const std::optional<OptionText> declared = variant.declared(name);
    if (!declared)
      throw Error(Code::usage, "{}: expected with {}, given {} with the variant {}", name,
                  takers_of(name, chapter), given.given(name), variant.name);
    if (!declared->accepts(given.given(name)))
      throw Error(Code::usage, "{}: expected {}, given {}", name, declared->expected,
                  printable(given.given(name)));
  }
}

int list_variants(Communicator& group, const Chapter& chapter) {
  for (const Variant& v : chapter.variants)
    if (group.device_id() == 0) fmt::print("{}\n", v.name);
  return 0;
}

/// The costs of all variants, or of one. The default network has enough layers for this number of devices.
int run_costs(Communicator& group, const Chapter& chapter, Arguments& arguments) {
  const Variant& variant = chapter.variant(arguments.only_variant.value_or(chapter.variants.front().name));
  if (arguments.only_variant) require_options_of(chapter, variant, arguments.options);
  if (arguments.config.empty())
    arguments.options = with_default_network(group.num_devices(), chapter, variant, arguments.options);
  return costs(group, chapter, variant, arguments);
}

int run_command(Communicator& believing, const Chapter& chapter, Arguments& arguments) {
  CheckedCommunicator checking(believing);
  Communicator& group = arguments.check_claims ? checking : believing;
  if (arguments.command == "variants") return list_variants(group, chapter);
  if (arguments.command == "costs") return run_costs(group, chapter, arguments);
  set_agreement(!arguments.unchecked);
  set_precision(
      static_cast<Precision>(std::ranges::find(precisions, arguments.precision) - precisions.begin()));
  const Variant& variant = chapter.variant(arguments.variant);
  require_options_of(chapter, variant, arguments.options);
  if (arguments.command == "save") return save(group, variant, arguments);
  if (arguments.command == "gradients") return gradients(group, variant, arguments);
  if (arguments.command == "infer") return infer(group, variant, arguments);
  if (arguments.command == "generate") return generate(group, variant, arguments);
  if (tensors_have_elements())
    require_room_for_parameters(group, *network_of(*variant.workload, arguments), arguments);
  if (arguments.config.empty())
    arguments.options = with_default_network(group.num_devices(), chapter, variant, arguments.options);
  if (arguments.command == "owns") return owns(group, variant, arguments);
  if (arguments.command == "train") return train(group, chapter, variant, arguments);
  refuse(Code::internal, "command", "one that run_command calls", arguments.command);
}

/// What a record says of a run.
Entry job_of(const Communicator& group, const Chapter& chapter, Arguments arguments) {
  const bool trains = arguments.command == "train", costs = arguments.command == "costs";
  Entry job = job_of(group, chapter, arguments.command,
                     costs ? arguments.only_variant.value_or("") : arguments.variant);
  const Variant& variant = chapter.variant(arguments.variant);
  if (trains && arguments.config.empty())
    arguments.options = with_default_network(group.num_devices(), chapter, variant, arguments.options);
  Entry options = Entry::object();
  for (const std::string& name : arguments.options.names()) options[name] = arguments.options.given(name);
  job["options"] = options;
  job["precision"] = arguments.precision;
  if (arguments.fault) job["fault"] = text_of(*arguments.fault);
  if (!trains) return job;
  job["network"] = network_of(*variant.workload, arguments)->describe();
  job["batch"] = arguments.batch;
  job["optimizer"] = arguments.optimizer;
  job["seed"] = arguments.seed;
  return job;
}

/// Runs the command with the planned fault. \throws Error usage when there is no such device or call
int run_with_fault(Communicator& group, const Chapter& chapter, Arguments& arguments) {
  if (!arguments.fault) return run_command(group, chapter, arguments);
  const auto& [device, call, kind] = *arguments.fault;
  if (device >= group.num_devices())
    throw Error(Code::usage, "--fault: expected a device of 0 to {}, given device={}",
                group.num_devices() - 1, device);
  FaultyCommunicator faulty(group, *arguments.fault);
  const int code = run_command(faulty, chapter, arguments);
  const Index calls = group.exchange("calls", faulty.calls())[static_cast<std::size_t>(device)];
  if (calls < call)
    throw Error(Code::usage, "--fault: expected one of device {}'s {} calls, given call={}", device, calls,
                call);
  return code;
}

/// Replaces sizes that were not given by the defaults of the variant's workload.
void take_usual_sizes(const CLI::App& command, const Chapter& chapter, Arguments& arguments) {
  const Variant& variant = chapter.variant(arguments.only_variant.value_or(arguments.variant));
  const TrainingDefaults usual = variant.workload->training_defaults();
  auto is_left_out = [&](const char* name) {
    const CLI::Option* option = command.get_option_no_throw(name);
    return option != nullptr && option->count() == 0;
  };
  if (is_left_out("--batch")) arguments.batch = usual.batch;
  if (is_left_out("--steps")) arguments.steps = usual.steps;
}

/// \throws Error usage when the checkpoint to resume has made all the steps already
void require_steps_to_make(const Arguments& arguments) {
  if (arguments.resumed && arguments.steps <= arguments.resumed->training->step)
    throw Error(Code::usage, "--steps: expected more than the {} that {} has made, given {}",
                arguments.resumed->training->step, printable(arguments.resume, 200), arguments.steps);
}

std::string about(const Chapter& chapter, int devices) {
  return fmt::format("Chapter {} of shardbook, {}, on {} device{}", chapter.short_name(), chapter.title,
                     devices, devices == 1 ? " (mpirun --oversubscribe -n 4 for more)" : "s");
}

/// What a chapter can do, with examples. A command's own --help lists its options.
std::string summary(const CLI::App& app, const Chapter& chapter, int devices) {
  const std::string name = chapter.short_name(), run = "./chapters/run " + name;
  std::string text =
      fmt::format("{}\nUsage: {} [COMMAND] [OPTIONS]\n\n", about(chapter, devices), chapter.folder);
  for (const CLI::App* command : app.get_subcommands({}))
    text += fmt::format("  {:<12}{}\n", command->get_name(), command->get_description());
  return text + fmt::format(
                    "\nFor example:\n"
                    "  {} -n 4 train --variant {} --steps 50\n"
                    "  {} -n 4 owns --variant {}\n"
                    "  {} costs --devices 8\n\n"
                    "{} train --help lists all options of train, and so on.\n",
                    run, chapter.variants.back().name, run, chapter.variants.front().name, run, run);
}

/// The parsed arguments. Nothing where the words ask for help, which is printed.
std::optional<Arguments> parse(const Chapter& chapter, int devices, const std::vector<std::string>& given) {
  const std::string& name = chapter.folder;
  CLI::App app(about(chapter, devices), name);
  app.require_subcommand(1);
  Arguments arguments;
  arguments.variant = chapter.variants.front().name;
  const Options defaults = with_default_network(devices, chapter, chapter.variants.front(), Options());
  add_commands(app, chapter, defaults, arguments);
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
  std::vector<std::string> words = with_command(given);
  const std::string& command = words.front();
  if (command[0] != '-' && std::ranges::find(known, command) == known.end())
    throw Error(Code::usage, "{}: expected a command, {}, given {}{} (--help lists the options)", name,
                fmt::join(known, " or "), shown(command), did_you_mean(command, known));
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them in reverse
  } catch (const CLI::CallForHelp&) {
    const bool is_of_command = !app.get_subcommands().empty();
    if (this_device() == 0)
      fmt::print("{}", help_text(is_of_command ? app.help() : summary(app, chapter, devices)));
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw Error(Code::usage, "{} {}: {} (--help lists the options)", name, command,
                explain(app, command, error));
  }
  arguments.command = app.get_subcommands().front()->get_name();
  take_recorded_options(*app.get_subcommands().front(), chapter, arguments);
  take_usual_sizes(*app.get_subcommands().front(), chapter, arguments);
  require_steps_to_make(arguments);
  if (arguments.save_every > 0 && arguments.save.empty())
    throw Error(Code::usage, "--save-every: expected with --save, which names the folder, given alone");
  return arguments;
}

}  // namespace

/// The devices of one process have the same words, so the first one parses them.
int run_chapter(Communicator& group, const Chapter& chapter, const std::vector<std::string>& given) {
  if (chapter.command) return chapter.command(group, given);
  struct Parsed {
    const Chapter* chapter = nullptr;
    int devices = 0;
    std::vector<std::string> words = {};
    std::optional<Arguments> arguments = {};
  };
  static Parsed last;
  if (last.chapter != &chapter || last.devices != group.num_devices() || last.words != given)
    last = {&chapter, group.num_devices(), given, parse(chapter, group.num_devices(), given)};
  std::optional<Arguments> arguments = last.arguments;
  if (!arguments) return 0;
  Recording recording{.path = arguments->record, .job = [&] { return job_of(group, chapter, *arguments); }};
  if (arguments->command == "train") recording.steps = arguments->record_steps;
  return run_recorded(group, recording,
                      [&](Communicator& recorded) { return run_with_fault(recorded, chapter, *arguments); });
}

}  // namespace shard
