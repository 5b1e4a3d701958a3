#include "engine/program/command_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <type_traits>

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

/// Accepts text that is a number as a whole, if `is_good` is true for it.
template <class Number>
CLI::Validator number(const std::string& expected, bool (*is_good)(Number)) {
  auto check = [=](const std::string& text) {
    Number value{};
    auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool good = error == std::errc() && stop == text.data() + text.size() && is_good(value);
    if (std::is_integral_v<Number>) good = good && text == fmt::to_string(value);  // CLI11 reads 010 as 8
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

/// Refuses the empty text, which would look like an option that is not given.
const CLI::Validator path(
    [](const std::string& text) { return text.empty() ? "expected a path, given nothing" : ""; }, "");

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
      auto check = [o, &chapter = chapter_](const std::string& text) {
        const bool is_taken = std::ranges::any_of(chapter.variants, [&](const Variant& v) {
          const std::optional<OptionText> declared = v.declared(o.name);
          return declared && declared->accepts(text);
        });
        return is_taken ? "" : fmt::format("expected {}, given {}", o.expected, shown(text));
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

/// Adds the options of all commands. The returned object must live until the command line has been parsed.
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
  command.add_option("--batch", a.batch, help)
      ->check(positive)
      ->type_name("N")
      ->default_str(usual(chapter, &TrainingDefaults::batch));
}

void add_optimizer_name(CLI::App& command, Arguments& a) {
  command.add_option("--optimizer", a.optimizer, "adam, sgd or integer")
      ->check(one_of({"adam", "sgd", "integer"}))
      ->type_name("NAME")
      ->capture_default_str();
}

void add_optimizer(CLI::App& train, Arguments& a) {
  add_optimizer_name(train, a);
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

/// Adds the options for writing a checkpoint; `folder` is the name of the option for its folder.
void add_saving(CLI::App& command, const std::string& folder, const std::string& help, Arguments& a) {
  command.add_option(folder, a.save, help)->type_name("DIR")->check(path);
  command
      .add_option(
          "--format", a.form.format,
          "gathered (one file), sharded (files of limited size), distributed (each device writes one)")
      ->check(one_of({"gathered", "sharded", "distributed"}))
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--max-shard-size",
          [&a](const std::string& text) { a.form.most_bytes = parse_size("--max-shard-size", text); },
          "With sharded: most bytes of a file, unless one tensor is larger")
      ->type_name("SIZE")
      ->default_str("5GB");
}

void add_verification(CLI::App& command, Arguments& a) {
  command.add_flag("--no-verify", a.unverified, "Do not compare a checkpoint's files with their digests");
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
      ->default_str(usual(chapter, &TrainingDefaults::steps));
  add_rows(*train, chapter, a, "Rows of the global batch");
  for (const Variant& v : chapter.variants) declared->add(v.workload->training_options(), defaults);
  add_optimizer(*train, a);
  train->add_option("--seed", a.seed, "Of initial weights and of the data")
      ->check(whole_number)
      ->type_name("N")
      ->capture_default_str();
  train->add_option("--report", a.report, "Also write the figures to this JSON file")
      ->type_name("FILE")
      ->check(path);
  add_saving(*train, "--save", "Save parameters and the optimizer's state here after the last step", a);
  train->add_option("--save-every", a.save_every, "Save after every N-th step, too")
      ->check(positive)
      ->type_name("N");
  train->add_option("--resume", a.resume, "Go on from this checkpoint, with the options that it had")
      ->type_name("DIR")
      ->check(path);
  add_verification(*train, a);
  return declared;
}

void add_parameters(CLI::App& command, const Chapter& chapter, Arguments& a) {
  command.add_option("--params", a.params, chapter.variants.front().workload->parameters_help())
      ->type_name("FILE")
      ->check(path)
      ->required();
  add_verification(command, a);
  command.add_option("--block", a.block, "Which block of the folder that --params names, such as encoder.0")
      ->type_name("NAME");
}

std::shared_ptr<DeclaredOptions> add_save(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* save =
      app.add_subcommand("save", "Save parameters as a checkpoint, from the devices that hold them");
  auto declared = add_common(*save, chapter, a);
  add_parameters(*save, chapter, a);
  add_saving(*save, "--out", "The folder to write; its other files are kept", a);
  save->get_option("--out")->required();
  return declared;
}

std::shared_ptr<DeclaredOptions> add_gradients(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* gradients = app.add_subcommand(
      "gradients",
      "Write output, input gradient and every weight gradient of a batch, to hold against another framework");
  auto declared = add_common(*gradients, chapter, a);
  add_parameters(*gradients, chapter, a);
  gradients->add_option("--batch", a.batch_file, "safetensors file with input and output_grad")
      ->type_name("FILE")
      ->check(path)
      ->required();
  gradients->add_option("--out", a.out, "safetensors file to write")
      ->type_name("FILE")
      ->check(path)
      ->required();
  return declared;
}

std::shared_ptr<DeclaredOptions> add_infer(CLI::App& app, const Chapter& chapter, Arguments& a) {
  CLI::App* infer = app.add_subcommand(
      "infer", "Read rows of numbers, or tokens, from standard input, write the network's output");
  auto declared = add_common(*infer, chapter, a);
  add_parameters(*infer, chapter, a);
  add_rows(*infer, chapter, a, "Rows that go through the network together");
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
  generate->add_option("--tokens", a.tokens, "How many to write, unless one ends the sequence (eos_token_id)")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
  return declared;
}

std::shared_ptr<DeclaredOptions> add_costs(CLI::App& app, const Chapter& chapter, const Options& defaults,
                                           Arguments& a) {
  CLI::App* costs = app.add_subcommand(
      "costs",
      "Print what a step of each variant sends, computes and holds: it runs on tensors without memory");
  std::vector<std::string> names;
  for (const Variant& v : chapter.variants) names.push_back(v.name);
  costs->add_option("--variant", a.only_variant, "Only this one, on each device")
      ->check(one_of(names))
      ->type_name("NAME");
  costs->add_option("--config", a.config, "A network as another library describes it: its config.json")
      ->type_name("FILE")
      ->check(path);
  costs->add_flag("--json", a.json, "As JSON, with each device's bytes");
  add_rows(*costs, chapter, a, "Rows of the global batch");
  auto declared = std::make_shared<DeclaredOptions>(*costs, chapter, a.options);
  for (const Variant& v : chapter.variants) declared->add(v.options);
  for (const Variant& v : chapter.variants) declared->add(v.workload->options());
  for (const Variant& v : chapter.variants) declared->add(v.workload->training_options(), defaults);
  add_optimizer_name(*costs, a);
  return declared;
}

std::shared_ptr<DeclaredOptions> add_owns(CLI::App& app, const Chapter& chapter, const Options& defaults,
                                          Arguments& a) {
  CLI::App* owns = app.add_subcommand("owns", "Print which part of each parameter each device has");
  auto declared = add_common(*owns, chapter, a);
  for (const Variant& v : chapter.variants) declared->add(v.workload->training_options(), defaults);
  return declared;
}

}  // namespace

std::vector<std::shared_ptr<void>> add_commands(CLI::App& app, const Chapter& chapter,
                                                const Options& defaults, Arguments& a) {
  std::vector<std::shared_ptr<void>> declared = {add_train(app, chapter, defaults, a),
                                                 add_save(app, chapter, a), add_gradients(app, chapter, a),
                                                 add_infer(app, chapter, a)};
  if (std::ranges::any_of(chapter.variants, [](const Variant& v) { return v.workload->has_tokens(); }))
    declared.push_back(add_generate(app, chapter, a));
  declared.push_back(add_costs(app, chapter, defaults, a));
  declared.push_back(add_owns(app, chapter, defaults, a));
  app.add_subcommand("variants", "List the variants' names, one a line");
  return declared;
}

}  // namespace shard
