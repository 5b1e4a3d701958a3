/// The command line that all chapters share.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <type_traits>

#include "engine/device/checked_communicator.hpp"
#include "engine/device/fault.hpp"
#include "engine/printable.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/memory_check.hpp"

namespace shard {

namespace {

const std::vector<std::string> commands = {"train", "gradients", "infer", "generate", "variants"};
const std::vector<std::string> precisions = {"float32", "tf32", "bf16"};  // as in enum Precision

/// Text of the user's in a message.
std::string shown(const std::string& text) {
  return text.empty() ? "''" : printable(text, 60);
}

/// Takes text that is a number from end to end, and as `is_good` wants it.
template <class Number>
CLI::Validator number(const std::string& expected, bool (*is_good)(Number)) {
  auto check = [=](const std::string& text) {
    Number value{};
    auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool good = error == std::errc() && stop == text.data() + text.size() && is_good(value);
    if (std::is_integral_v<Number>)
      good = good && text == fmt::to_string(value);  // CLI11 would take 010 for 8
    return good ? std::string() : fmt::format("expected {}, given {}", expected, shown(text));
  };
  return {check, ""};
}

const CLI::Validator positive =
    number<Index>("a whole number from 1 to 2^30", [](Index n) { return n >= 1 && n <= Index{1} << 30; });
const CLI::Validator positive_real =
    number<float>("a finite number above 0", [](float x) { return x > 0 && std::isfinite(x); });
const CLI::Validator positive_double =
    number<double>("a finite number above 0", [](double x) { return x > 0 && std::isfinite(x); });
const CLI::Validator whole_number =
    number<std::uint64_t>("a whole number from 0 to 2^64-1", [](std::uint64_t) { return true; });

CLI::Validator one_of(const std::vector<std::string>& names) {
  auto check = [=](const std::string& text) {
    bool good = std::ranges::find(names, text) != names.end();
    if (good) return std::string();
    return fmt::format("expected {}, given {}", fmt::join(names, " or "), shown(text));
  };
  return {check, ""};
}

std::string list_of(const std::vector<Variant>& variants) {
  std::string text;
  for (const Variant& v : variants) text += fmt::format("\n    {:<14} {}", v.name, v.summary);
  return text;
}

/// The names of the variants that an option is for: "all-reduce or bucketed".
std::string takers_of(const std::string& option, const Chapter& chapter) {
  std::vector<std::string> names;
  for (const Variant& v : chapter.variants)
    if (v.has_option(option)) names.push_back(v.name);
  return fmt::to_string(fmt::join(names, " or "));
}

/// Options that variants or their workloads declare, each name once.
class DeclaredOptions {
 public:
  DeclaredOptions(CLI::App& command, const Chapter& chapter, Options& given)
      : command_(command), chapter_(chapter), given_(given) {}

  /// `initial`: values other than those that options have by themselves.
  void add(const std::vector<OptionText>& options, const Options& initial = {}) {
    for (const OptionText& o : options) {
      if (!added_.insert(o.name).second) continue;
      const bool is_for_all =
          std::ranges::all_of(chapter_.variants, [&](const Variant& v) { return v.has_option(o.name); });
      const std::string help =
          is_for_all ? o.help : fmt::format("{} (with {})", o.help, takers_of(o.name, chapter_));
      auto check = [o](const std::string& text) {
        return o.accepts(text) ? "" : fmt::format("expected {}, given {}", o.expected, shown(text));
      };
      command_
          .add_option_function<std::string>(
              o.name, [this, name = o.name](const std::string& text) { given_.set(name, text); }, help)
          ->check(CLI::Validator(check, ""))
          ->type_name(o.type)
          ->default_str(initial.has(o.name) ? initial.given(o.name) : o.initial);
    }
  }

 private:
  CLI::App& command_;
  const Chapter& chapter_;
  Options& given_;
  std::set<std::string> added_;
};

/// Options that all commands have. What they return must live until the command line has been parsed.
std::shared_ptr<DeclaredOptions> add_common(CLI::App& command, const Chapter& chapter, Arguments& a) {
  std::vector<std::string> names;
  for (const Variant& v : chapter.variants) names.push_back(v.name);
  command.add_option("--variant", a.variant, "How to carry out the strategy:" + list_of(chapter.variants))
      ->check(one_of(names))
      ->type_name("NAME")
      ->default_val(names.front());
  auto declared = std::make_shared<DeclaredOptions>(command, chapter, a.options);
  for (const Variant& v : chapter.variants) declared->add(v.options);
  for (const Variant& v : chapter.variants) declared->add(v.workload->options());
  command
      .add_option(
          "--precision", a.precision,
          "How matrix products round their operands: float32 (not at all), tf32 (to 11 bits) or bf16 (8)")
      ->check(one_of(precisions))
      ->type_name("NAME")
      ->capture_default_str();
  auto is_fault = [](const std::string& text) {
    return fault_from(text) ? "" : fmt::format("expected device=2,call=17,kind=kill, given {}", shown(text));
  };
  command
      .add_option_function<std::string>(
          "--fault", [&a](const std::string& text) { a.fault = fault_from(text); },
          "Let something go wrong on a device at one of its calls, to see what is said of it: kill, exit,\n"
          "throw, stop, delay, skip or corrupt (docs/errors.md)")
      ->check(CLI::Validator(is_fault, ""))
      ->type_name("device=D,call=C,kind=KIND");
  command.add_flag("--check", a.check_claims, "Verify that tensors said to be the same on every device are");
  command.add_flag("--unchecked", a.unchecked,
                   "Leave out that devices agree on each all_reduce and reduce_scatter before it: a little\n"
                   "faster, but a mistake hangs or gives wrong numbers");
  return declared;
}

void add_optimizer(CLI::App& train, Arguments& a) {
  train.add_option("--optimizer", a.optimizer, "adam, sgd or integer")
      ->check(one_of({"adam", "sgd", "integer"}))
      ->type_name("NAME")
      ->capture_default_str();
  train.add_option("--learning-rate", a.learning_rate, "Step size")
      ->check(positive_real)
      ->type_name("X")
      ->capture_default_str();
  train
      .add_option(
          "--clip-norm", a.clip_norm,
          "Scale the gradients down, before each step, where the norm of all of them together is larger")
      ->check(positive_double)
      ->type_name("X");
}

std::shared_ptr<DeclaredOptions> add_train(CLI::App& app, const Chapter& chapter, const Options& defaults,
                                           Arguments& a) {
  CLI::App* train = app.add_subcommand(
      "train",
      "Learn, and hold gradients, bytes and memory against the unsharded network and the closed forms (the\n"
      "default)");
  auto declared = add_common(*train, chapter, a);
  train->add_option("--steps", a.steps, "Optimizer steps")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
  train->add_option("--batch", a.batch, "Rows of the global batch")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
  for (const Variant& v : chapter.variants) declared->add(v.workload->training_options(), defaults);
  add_optimizer(*train, a);
  train->add_option("--seed", a.seed, "Of initial weights and of the data")
      ->check(whole_number)
      ->type_name("N")
      ->capture_default_str();
  train->add_option("--report", a.report, "Also write the figures to this JSON file")->type_name("FILE");
  return declared;
}

void add_parameters(CLI::App& command, const Chapter& chapter, Arguments& a) {
  command.add_option("--params", a.params, chapter.variants.front().workload->parameters_help())
      ->type_name("FILE")
      ->required();
  command.add_option("--block", a.block, "Which block of the folder that --params names, such as encoder.0")
      ->type_name("NAME");
}

std::shared_ptr<DeclaredOptions> add_gradients(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* gradients = app.add_subcommand(
      "gradients",
      "Write output, input gradient and every weight gradient of a batch, to hold against another framework");
  auto declared = add_common(*gradients, chapter, a);
  add_parameters(*gradients, chapter, a);
  gradients->add_option("--batch", a.batch_file, "safetensors file with input and output_grad")
      ->type_name("FILE")
      ->required();
  gradients->add_option("--out", a.out, "safetensors file to write")->type_name("FILE")->required();
  return declared;
}

std::shared_ptr<DeclaredOptions> add_infer(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* infer = app.add_subcommand(
      "infer", "Read rows of numbers, or tokens, from standard input, write the network's output");
  auto declared = add_common(*infer, chapter, a);
  add_parameters(*infer, chapter, a);
  infer->add_option("--batch", a.batch, "Rows that go through the network together")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
  return declared;
}

std::shared_ptr<DeclaredOptions> add_generate(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* generate = app.add_subcommand(
      "generate", "Write the tokens that follow a prompt, each the likeliest after all before it");
  auto declared = add_common(*generate, chapter, a);
  add_parameters(*generate, chapter, a);
  generate->add_option("--ids", a.ids, "The prompt: tokens, such as 5,17,2")->type_name("LIST");
  generate->add_option("--text", a.text, "The prompt of a network of characters, whose text is --data")
      ->type_name("TEXT");
  generate->add_option("--tokens", a.tokens, "How many to write")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
  return declared;
}

/// `train` is what a chapter does when it is not told otherwise.
std::vector<std::string> with_command(std::vector<std::string> words) {
  bool has_command = !words.empty() && (words[0].empty() || words[0][0] != '-');
  bool asks_for_help = !words.empty() && (words[0] == "--help" || words[0] == "-h");
  if (!has_command && !asks_for_help) words.insert(words.begin(), "train");
  return words;
}

/// A mistake on the command line: CLI11's words, or ours where its own are a riddle.
std::string explain(const CLI::App& app, const std::string& command, const CLI::ParseError& error) {
  std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return fmt::format("expected an option of {}, given {}", command, shown(app.remaining(true).front()));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return what.substr(0, what.find(':')) + ": expected one value, given none or several";
  return what;
}

/// Options of the first network, from the usual size on, that all of these variants accept with the options
/// they have by themselves; what was given stays as it is. `given` if there is none within reach.
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

/// A network that is large enough for all variants, so that their curves can be compared; else for this one.
Options with_default_network(int devices, const Chapter& chapter, const Variant& variant,
                             const Options& given) {
  std::vector<const Variant*> all = {&variant};
  for (const Variant& v : chapter.variants) all.push_back(&v);
  Options options = first_accepted(devices, all, given);
  auto accepts = [&] { return variant.accepts(devices, *variant.workload->make(options), options); };
  for (int i = 0; i < 64 && !accepts(); ++i)
    if (!variant.workload->deepen(options, given)) break;
  return options;
}

/// \throws Error usage when an option is given that this variant does not take
void require_options_of(const Chapter& chapter, const Variant& variant, const Options& given) {
  for (const std::string& name : given.names())
    if (!variant.has_option(name))
      throw Error(Code::usage, fmt::format("{}: expected with {}, given {} with the variant {}", name,
                                           takers_of(name, chapter), given.given(name), variant.name));
}

int list_variants(Communicator& group, const Chapter& chapter) {
  for (const Variant& v : chapter.variants)
    if (group.device_id() == 0) fmt::print("{}\n", v.name);
  return 0;
}

int run_command(Communicator& believing, const Chapter& chapter, Arguments& arguments) {
  CheckedCommunicator checking(believing);
  Communicator& group = arguments.check_claims ? checking : believing;
  if (arguments.command == "variants") return list_variants(group, chapter);
  set_agreement(!arguments.unchecked);
  set_precision(
      static_cast<Precision>(std::ranges::find(precisions, arguments.precision) - precisions.begin()));
  const Variant& variant = chapter.variant(arguments.variant);
  require_options_of(chapter, variant, arguments.options);
  if (arguments.command == "gradients") return gradients(group, variant, arguments);
  if (arguments.command == "infer") return infer(group, variant, arguments);
  if (arguments.command == "generate") return generate(group, variant, arguments);
  require_room_for_parameters(group, *variant.workload->make(arguments.options), arguments);
  arguments.options = with_default_network(group.num_devices(), chapter, variant, arguments.options);
  return train(group, chapter, variant, arguments);
}

/// The same with a fault. \throws Error usage when it does not happen: there is no such device, or no such
/// call.
int run_with_fault(Communicator& group, const Chapter& chapter, Arguments& arguments) {
  if (!arguments.fault) return run_command(group, chapter, arguments);
  const auto& [device, call, kind] = *arguments.fault;
  if (device >= group.num_devices())
    throw Error(Code::usage, fmt::format("--fault: expected a device of 0 to {}, given device={}",
                                         group.num_devices() - 1, device));
  FaultyCommunicator faulty(group, *arguments.fault);
  const int code = run_command(faulty, chapter, arguments);
  const Index calls = group.exchange("calls", faulty.calls())[static_cast<std::size_t>(device)];
  if (calls < call)
    throw Error(Code::usage, fmt::format("--fault: expected one of device {}'s {} calls, given call={}",
                                         device, calls, call));
  return code;
}

std::string about(const Chapter& chapter, int devices) {
  return fmt::format("Chapter {} of shardbook, {}, on {} device{}", chapter.short_name(), chapter.title,
                     devices, devices == 1 ? " (mpirun -n 4 for more)" : "s");
}

}  // namespace

int run_chapter(Communicator& group, const Chapter& chapter, const std::vector<std::string>& given) {
  if (chapter.command) return chapter.command(group, given);
  const std::string& name = chapter.folder;
  CLI::App app(about(chapter, group.num_devices()), name);
  app.require_subcommand(1);
  Arguments arguments;
  const TrainingDefaults usual = chapter.variants.front().workload->training_defaults();
  arguments.batch = usual.batch, arguments.steps = usual.steps;
  const Options defaults =
      with_default_network(group.num_devices(), chapter, chapter.variants.front(), Options());
  std::vector<std::shared_ptr<DeclaredOptions>> declared = {add_train(app, chapter, defaults, arguments),
                                                            add_gradients(app, chapter, arguments),
                                                            add_infer(app, chapter, arguments)};
  const bool generates = chapter.variants.front().workload->has_tokens();
  if (generates) declared.push_back(add_generate(app, chapter, arguments));
  app.add_subcommand("variants", "List the variants' names, one a line");
  std::vector<std::string> words = with_command(given);
  const std::string& command = words.front();
  std::vector<std::string> known = commands;
  if (!generates) std::erase(known, "generate");
  if (command[0] != '-' && std::ranges::find(known, command) == known.end())
    throw Error(Code::usage, fmt::format("{}: expected a command, {}, given {} (--help lists the options)",
                                         name, fmt::join(known, " or "), shown(command)));
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 takes them
  } catch (const CLI::CallForHelp&) {
    if (group.device_id() == 0) fmt::print("{}", app.help("", CLI::AppFormatMode::All));
    return 0;
  } catch (const CLI::ParseError& error) {
    throw Error(Code::usage, fmt::format("{} {}: {} (--help lists the options)", name, command,
                                         explain(app, command, error)));
  }
  arguments.command = app.get_subcommands().front()->get_name();
  return run_with_fault(group, chapter, arguments);
}

}  // namespace shard
