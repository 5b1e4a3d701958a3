#include "engine/program/command_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>

#include "engine/basics/near_names.hpp"
#include "engine/basics/printable.hpp"
#include "engine/checkpoints/split.hpp"
#include "engine/device/communicator/fault.hpp"

namespace shard {

std::string shown(const std::string& text) {
  return text.empty() ? "''" : printable(text, 60);
}

std::string takers_of(const std::string& option, const Chapter& chapter) {
  std::vector<std::string> names;
  for (const Variant& v : chapter.variants)
    if (v.has_option(option)) names.push_back(v.name);
  return fmt::to_string(fmt::join(names, " or "));
}

namespace {

/// Refuses texts that are not accepted.
CLI::Validator accepting(const std::string& expected,
                         const std::function<bool(const std::string&)>& accepts) {
  auto check = [=](const std::string& text) {
    return accepts(text) ? "" : fmt::format("expected {}, given {}", expected, shown(text));
  };
  return {check, ""};
}

const CLI::Validator positive =
    accepting("a whole number from 1 to 2^30", option_text("", Index{1}, "").accepts);
const CLI::Validator positive_real = accepting("a finite number above 0", [](const std::string& text) {
  return is_number(
      text, [](double x) { return static_cast<float>(x) > 0 && std::isfinite(static_cast<float>(x)); });
});
const CLI::Validator positive_double = accepting("a finite number above 0", [](const std::string& text) {
  return is_number(text, [](double x) { return x > 0 && std::isfinite(x); });
});
const CLI::Validator whole_number = accepting("a whole number from 0 to 2^64-1", [](const std::string& text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  return std::from_chars(text.data(), end, value).ptr == end && text == fmt::to_string(value);
});

constexpr auto needs_scaling =
    "its small gradients become 0 unless the loss is scaled, which nothing here does; bf16 needs no scale";

/// Refuses the empty text, which would look like an option that is not given.
const CLI::Validator path(
    [](const std::string& text) { return text.empty() ? "expected a path, given nothing" : ""; }, "");

/// Refuses other texts than these. `why_not` has the reasons for texts that people expect here.
CLI::Validator one_of(const std::vector<std::string>& names,
                      const std::map<std::string, std::string>& why_not = {}) {
  auto check = [=](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return "";
    const auto known = why_not.find(text);
    return fmt::format("expected {}, given {}{}", fmt::join(names, " or "), shown(text),
                       known == why_not.end() ? did_you_mean(text, names) : ": " + known->second);
  };
  return {check, ""};
}

/// Adds an option. `type` is its value's name in --help.
template <class Value>
CLI::Option* add(CLI::App& command, const std::string& name, const std::string& type, Value& value,
                 const std::string& help, const CLI::Validator& check) {
  return command.add_option(name, value, help)->check(check)->type_name(type);
}
/// One whose text is passed to a function.
CLI::Option* add_read(CLI::App& command, const std::string& name, const std::string& type,
                      const std::function<void(const std::string&)>& read, const std::string& help) {
  return command.add_option_function(name, read, help)->type_name(type);
}

std::string list_of(const std::vector<Variant>& variants) {
  std::string text;
  for (const Variant& v : variants) text += fmt::format("\n    {:<14} {}", v.name, v.summary);
  return text;
}

/// Options that variants or their workloads declare, each name once. A value is refused here if no variant
/// accepts it. After parsing, the chosen variant's own options are checked.
class DeclaredOptions {
 public:
  DeclaredOptions(CLI::App& command, const Chapter& chapter, Options& given)
      : command_(command), chapter_(chapter), given_(given) {}

  /// `initial`: values that replace the options' own defaults.
  void add(const std::vector<OptionText>& options, const Options& initial = {}) {
    for (const OptionText& o : options) {
      if (!added_.insert(o.name).second) continue;
      const bool is_for_all =
          std::ranges::all_of(chapter_.variants, [&](const Variant& v) { return v.has_option(o.name); });
      const std::string help =
          is_for_all ? o.help : fmt::format("{} (with {})", o.help, takers_of(o.name, chapter_));
      auto is_taken = [name = o.name, &chapter = chapter_](const std::string& text) {
        return std::ranges::any_of(chapter.variants, [&](const Variant& v) {
          const std::optional<OptionText> declared = v.declared(name);
          return declared && declared->accepts(text);
        });
      };
      auto set = [&given = given_, name = o.name](const std::string& text) { given.set(name, text); };
      add_read(command_, o.name, o.type, set, help)
          ->check(accepting(o.expected, is_taken))
          ->default_str(initial.has(o.name) ? initial.given(o.name) : usual(o));
    }
  }

 private:
  /// "2", or "1, top-k 2" where variants have other initial values.
  std::string usual(const OptionText& option) const {
    std::string text = option.initial;
    std::set<std::string> said = {text};
    for (const Variant& v : chapter_.variants)
      if (const auto o = v.declared(option.name); o && said.insert(o->initial).second)
        text += fmt::format(", {} {}", v.name, o->initial);
    return text;
  }

  CLI::App& command_;
  const Chapter& chapter_;
  Options& given_;
  std::set<std::string> added_;
};

std::vector<std::string> names_of(const std::vector<Variant>& variants) {
  std::vector<std::string> names;
  for (const Variant& v : variants) names.push_back(v.name);
  return names;
}

/// The options that variants and their workloads declare.
DeclaredOptions add_declared(CLI::App& command, const Chapter& chapter, Arguments& a) {
  DeclaredOptions declared(command, chapter, a.options);
  for (const Variant& v : chapter.variants) declared.add(v.options);
  for (const Variant& v : chapter.variants) declared.add(v.workload->options());
  return declared;
}

/// Adds the options of all commands.
DeclaredOptions add_common(CLI::App& command, const Chapter& chapter, Arguments& a) {
  const std::vector<std::string> names = names_of(chapter.variants);
  add(command, "--variant", "NAME", a.variant, "How to carry out the strategy:" + list_of(chapter.variants),
      one_of(names))
      ->default_val(names.front());
  DeclaredOptions declared = add_declared(command, chapter, a);
  add(command, "--precision", "NAME", a.precision,
      "How matrix products round their operands: float32 (not at all), tf32 (to 11 bits) or bf16 (8)",
      one_of(precisions, {{"fp16", needs_scaling}, {"float16", needs_scaling}, {"half", needs_scaling}}))
      ->capture_default_str();
  auto is_fault = [](const std::string& text) { return fault_from(text).has_value(); };
  add_read(
      command, "--fault", "device=D,call=C,kind=KIND",
      [&a](const std::string& text) { a.fault = fault_from(text); },
      "Let something go wrong on a device at one of its calls, to see what is said of it: kill, exit, "
      "throw, stop, delay, skip or corrupt (docs/errors.md)")
      ->check(accepting("device=D,call=C,kind=KIND, a KIND of kill, exit, throw, stop, delay, skip, corrupt",
                        is_fault));
  command.add_flag("--check", a.check_claims, "Verify that tensors said to be the same on every device are");
  command.add_flag("--unchecked", a.unchecked,
                   "Leave out that devices agree on each all_reduce and reduce_scatter before it: a little "
                   "faster, but a mistake hangs or gives wrong numbers");
  return declared;
}

/// "64", or "64, decoder 8": the default size of each kind of network that a chapter trains.
std::string usual(const Chapter& chapter, Index TrainingDefaults::*size) {
  std::string text;
  std::vector<Index> said;
  for (const Variant& v : chapter.variants) {
    const Index here = v.workload->training_defaults().*size;
    if (std::ranges::find(said, here) != said.end()) continue;
    text += said.empty() ? fmt::to_string(here) : fmt::format(", {} {}", v.workload->name(), here);
    said.push_back(here);
  }
  return text;
}

void add_rows(CLI::App& command, const Chapter& chapter, Arguments& a, const std::string& help) {
  add(command, "--batch", "N", a.batch, help, positive)
      ->default_str(usual(chapter, &TrainingDefaults::batch));
}

void add_optimizer_name(CLI::App& command, Arguments& a) {
  add(command, "--optimizer", "NAME", a.optimizer, "adam, sgd or integer",
      one_of({"adam", "sgd", "integer"}, {{"adamw", "adam is Adam without weight decay"}}))
      ->capture_default_str();
}

void add_optimizer(CLI::App& train, Arguments& a) {
  add_optimizer_name(train, a);
  add(train, "--learning-rate", "X", a.learning_rate, "Step size", positive_real)->capture_default_str();
  add(train, "--clip-norm", "X", a.clip_norm,
      "Scale the gradients down, before each step, where the norm of all of them together is larger",
      positive_double);
}

/// Adds the options for writing a checkpoint; `folder` is the name of the option for its folder.
void add_saving(CLI::App& command, const std::string& folder, const std::string& help, Arguments& a) {
  add(command, folder, "DIR", a.save, help, path);
  add(command, "--format", "NAME", a.form.format,
      "gathered (one file), sharded (files of limited size), distributed (each device writes one)",
      one_of({"gathered", "sharded", "distributed"}))
      ->capture_default_str();
  add_read(
      command, "--max-shard-size", "SIZE",
      [&a](const std::string& text) { a.form.most_bytes = parse_size("--max-shard-size", text); },
      "With sharded: most bytes of a file, unless one tensor is larger")
      ->default_str("5GB");
}

void add_verification(CLI::App& command, Arguments& a) {
  command.add_flag("--no-verify", a.unverified, "Do not compare a checkpoint's files with their digests");
}

void add_record(CLI::App& command, Arguments& a) {
  add(command, "--record", "FILE", a.record,
      "Also write to this JSON file what each device called, computed and held (docs/record.md)", path);
}

void add_train(CLI::App& app, const Chapter& chapter, const Options& defaults, Arguments& a) {
  CLI::App* train = app.add_subcommand(
      "train",
      "Learn, and hold gradients, bytes and memory against the unsharded network and the closed forms "
      "(the default)");
  DeclaredOptions declared = add_common(*train, chapter, a);
  add(*train, "--steps", "N", a.steps, "Optimizer steps", positive)
      ->default_str(usual(chapter, &TrainingDefaults::steps));
  add_rows(*train, chapter, a, "Rows of the global batch");
  for (const Variant& v : chapter.variants) declared.add(v.workload->training_options(), defaults);
  add_optimizer(*train, a);
  add(*train, "--seed", "N", a.seed, "Of initial weights and of the data", whole_number)
      ->capture_default_str();
  add(*train, "--report", "FILE", a.report, "Also write the figures to this JSON file", path);
  add_record(*train, a);
  add(*train, "--record-steps", "N", a.record_steps, "How many of the first steps the record has", positive)
      ->capture_default_str();
  train->add_flag(
      "--times", a.times,
      "Also print how long a step takes, and the rate of its products: times here are this machine's");
  add_saving(*train, "--save", "Save parameters and the optimizer's state here after the last step", a);
  add(*train, "--save-every", "N", a.save_every, "Save after every N-th step, too", positive);
  add(*train, "--resume", "DIR", a.resume, "Go on from this checkpoint, with the options that it had", path);
  add_verification(*train, a);
}

void add_parameters(CLI::App& command, const Chapter& chapter, Arguments& a) {
  add(command, "--params", "FILE", a.params, chapter.variants.front().workload->parameters_help(), path)
      ->required();
  add_verification(command, a);
  command.add_option("--block", a.block, "Which block of the folder that --params names, such as encoder.0")
      ->type_name("NAME");
}

void add_save(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* save =
      app.add_subcommand("save", "Save parameters as a checkpoint, from the devices that hold them");
  add_common(*save, chapter, a);
  add_parameters(*save, chapter, a);
  add_saving(*save, "--out", "The folder to write; its other files are kept", a);
  save->get_option("--out")->required();
  add_record(*save, a);
}

void add_gradients(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* gradients = app.add_subcommand(
      "gradients",
      "Write output, input gradient and every weight gradient of a batch, to hold against another framework");
  add_common(*gradients, chapter, a);
  add_parameters(*gradients, chapter, a);
  add(*gradients, "--batch", "FILE", a.batch_file, "safetensors file with input and output_grad", path)
      ->required();
  add(*gradients, "--out", "FILE", a.out, "safetensors file to write", path)->required();
  add_record(*gradients, a);
}

void add_infer(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* infer = app.add_subcommand(
      "infer", "Read rows of numbers, or tokens, from standard input, write the network's output");
  add_common(*infer, chapter, a);
  add_parameters(*infer, chapter, a);
  add_rows(*infer, chapter, a, "Rows that go through the network together");
  add_record(*infer, a);
}

void add_generate(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* generate = app.add_subcommand(
      "generate", "Write the tokens that follow a prompt, each the likeliest after all before it");
  add_common(*generate, chapter, a);
  add_parameters(*generate, chapter, a);
  generate->add_option("--ids", a.ids, "The prompt: tokens, such as 5,17,2")->type_name("LIST");
  generate->add_option("--text", a.text, "The prompt of a network of characters, whose text is --data")
      ->type_name("TEXT");
  add(*generate, "--tokens", "N", a.tokens, "How many to write, unless one ends the sequence (eos_token_id)",
      positive)
      ->capture_default_str();
  add_record(*generate, a);
}

void add_config(CLI::App& command, Arguments& a) {
  add(command, "--config", "FILE", a.config, "A network as another library describes it: its config.json",
      path);
}

void add_costs(CLI::App& app, const Chapter& chapter, const Options& defaults, Arguments& a) {
  CLI::App* costs = app.add_subcommand(
      "costs",
      "Print what a step of each variant sends, computes and holds: it runs on tensors without memory");
  add(*costs, "--variant", "NAME", a.only_variant, "Only this one, on each device",
      one_of(names_of(chapter.variants)));
  add_config(*costs, a);
  costs->add_flag("--json", a.json, "As JSON, with each device's bytes");
  add_rows(*costs, chapter, a, "Rows of the global batch");
  DeclaredOptions declared = add_declared(*costs, chapter, a);
  for (const Variant& v : chapter.variants) declared.add(v.workload->training_options(), defaults);
  add_optimizer_name(*costs, a);
  add_record(*costs, a);
}

void add_owns(CLI::App& app, const Chapter& chapter, const Options& defaults, Arguments& a) {
  CLI::App* owns = app.add_subcommand("owns", "Print which part of each parameter each device has");
  DeclaredOptions declared = add_common(*owns, chapter, a);
  add_config(*owns, a);
  for (const Variant& v : chapter.variants) declared.add(v.workload->training_options(), defaults);
}

}  // namespace

void add_commands(CLI::App& app, const Chapter& chapter, const Options& defaults, Arguments& a) {
  add_train(app, chapter, defaults, a);
  add_save(app, chapter, a);
  add_gradients(app, chapter, a);
  add_infer(app, chapter, a);
  if (std::ranges::any_of(chapter.variants, [](const Variant& v) { return v.workload->has_tokens(); }))
    add_generate(app, chapter, a);
  add_costs(app, chapter, defaults, a);
  add_owns(app, chapter, defaults, a);
  app.add_subcommand("variants", "List the variants' names, one a line");
}

}  // namespace shard
