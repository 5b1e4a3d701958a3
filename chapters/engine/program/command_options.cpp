#include "engine/program/command_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/basics/near_names.hpp"
#include "engine/basics/printable.hpp"
#include "engine/checkpoints/split.hpp"

namespace shard {

std::string shown(const std::string& text) {
  return text.empty() ? "''" : printable(text, 60);
}

namespace {

/// The names of the variants that take an option: "all-reduce or bucketed".
std::string takers_of(const std::string& option, const Chapter& chapter) {
  std::vector<std::string> names;
  for (const Variant& v : chapter.variants)
    if (v.has_option(option)) names.push_back(v.name);
  return fmt::to_string(fmt::join(names, " or "));
}

/// Refuses texts that are not accepted.
CLI::Validator accepting(const std::string& expected,
                         const std::function<bool(const std::string&)>& accepts) {
  auto check = [=](const std::string& text) {
    return accepts(text) ? "" : fmt::format("expected {}, given {}", expected, shown(text));
  };
  return {check, ""};
}

constexpr auto needs_scaling =
    "its small gradients become 0 unless the loss is scaled, which nothing here does; bf16 needs no scale";

std::string list_of(const std::vector<Variant>& variants) {
  std::string text;
  for (const Variant& v : variants) text += fmt::format("\n    {:<14} {}", v.name, v.summary);
  return text;
}

/// "2", or "1, top-k 2" where variants have other initial values.
std::string usual(const OptionText& option, const Chapter& chapter) {
  std::string text = option.initial;
  std::set<std::string> said = {text};
  for (const Variant& v : chapter.variants)
    if (const auto o = v.declared(option.name); o && said.insert(o->initial).second)
      text += fmt::format(", {} {}", v.name, o->initial);
  return text;
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

}  // namespace

CLI::Validator positive() {
  return accepting("a whole number from 1 to 2^30", option_text("", Index{1}, "").accepts);
}

CLI::Validator positive_real() {
  return accepting("a finite number above 0", [](const std::string& text) {
    return is_number(
        text, [](double x) { return static_cast<float>(x) > 0 && std::isfinite(static_cast<float>(x)); });
  });
}

CLI::Validator positive_double() {
  return accepting("a finite number above 0", [](const std::string& text) {
    return is_number(text, [](double x) { return x > 0 && std::isfinite(x); });
  });
}

CLI::Validator whole_number() {
  return accepting("a whole number from 0 to 2^64-1", [](const std::string& text) {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    return std::from_chars(text.data(), end, value).ptr == end && text == fmt::to_string(value);
  });
}

CLI::Validator path() {
  return {[](const std::string& text) { return text.empty() ? "expected a path, given nothing" : ""; }, ""};
}

CLI::Validator one_of(const std::vector<std::string>& names,
                      const std::map<std::string, std::string>& why_not) {
  auto check = [=](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return "";
    const auto known = why_not.find(text);
    return fmt::format("expected {}, given {}{}", fmt::join(names, " or "), shown(text),
                       known == why_not.end() ? did_you_mean(text, names) : ": " + known->second);
  };
  return {check, ""};
}

CLI::Validator name_of_variant(const Chapter& chapter) {
  std::vector<std::string> names;
  for (const Variant& v : chapter.variants) names.push_back(v.name);
  return one_of(names);
}

CLI::Option* add_read(CLI::App& command, const std::string& name, const std::string& type,
                      const std::function<void(const std::string&)>& read, const std::string& help) {
  return command.add_option_function(name, read, help)->type_name(type);
}

DeclaredOptions::DeclaredOptions(const CommandLine& line, Options& given) : line_(line), given_(given) {
  for (const Variant& v : line.chapter.variants) add(v.options);
  for (const Variant& v : line.chapter.variants) add(v.workload->options());
}

void DeclaredOptions::add_sizes() {
  for (const Variant& v : line_.chapter.variants) add(v.workload->training_options(), line_.defaults);
}

/// `initial`: values that replace the options' own defaults.
void DeclaredOptions::add(const std::vector<OptionText>& options, const Options& initial) {
  const Chapter& chapter = line_.chapter;
  for (const OptionText& o : options) {
    if (!added_.insert(o.name).second) continue;
    const bool is_for_all =
        std::ranges::all_of(chapter.variants, [&](const Variant& v) { return v.has_option(o.name); });
    const std::string help =
        is_for_all ? o.help : fmt::format("{} (with {})", o.help, takers_of(o.name, chapter));
    auto is_taken = [name = o.name, &chapter](const std::string& text) {
      return std::ranges::any_of(chapter.variants, [&](const Variant& v) {
        const std::optional<OptionText> declared = v.declared(name);
        return declared && declared->accepts(text);
      });
    };
    auto set = [&given = given_, name = o.name](const std::string& text) { given.set(name, text); };
    add_read(line_.app, o.name, o.type, set, help)
        ->check(accepting(o.expected, is_taken))
        ->default_str(initial.has(o.name) ? initial.given(o.name) : usual(o, chapter));
  }
}

DeclaredOptions add_engine_options(const CommandLine& line, Command& command) {
  CLI::App& app = line.app;
  add(app, "--variant", "NAME", command.variant,
      "How to carry out the strategy:" + list_of(line.chapter.variants), name_of_variant(line.chapter))
      ->default_val(line.chapter.variants.front().name);
  DeclaredOptions declared(line, command.options);
  add(app, "--precision", "NAME", command.precision,
      "How matrix products round their operands: float32 (not at all), tf32 (to 11 bits) or bf16 (8)",
      one_of(precisions, {{"fp16", needs_scaling}, {"float16", needs_scaling}, {"half", needs_scaling}}))
      ->capture_default_str();
  auto is_fault = [](const std::string& text) { return fault_from(text).has_value(); };
  add_read(
      app, "--fault", "device=D,call=C,kind=KIND",
      [&command](const std::string& text) { command.fault = fault_from(text); },
      "Let something go wrong on a device at one of its calls, to see what is said of it: kill, exit, "
      "throw, stop, delay, skip or corrupt (docs/errors.md)")
      ->check(accepting("device=D,call=C,kind=KIND, a KIND of kill, exit, throw, stop, delay, skip, corrupt",
                        is_fault));
  app.add_flag("--check", command.check_claims,
               "Verify that tensors said to be the same on every device are");
  app.add_flag("--unchecked", command.unchecked,
               "Leave out that devices agree on each all_reduce and reduce_scatter before it: a little "
               "faster, but a mistake hangs or gives wrong numbers");
  return declared;
}

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

void add_rows(const CommandLine& line, Index& batch, const std::string& help) {
  add(line.app, "--batch", "N", batch, help, positive())
      ->default_str(usual(line.chapter, &TrainingDefaults::batch));
}

void take_usual(const CommandLine& line, const Command& command, const char* option,
                Index TrainingDefaults::*size, Index& value) {
  const Variant& variant =
      command.variant.empty() ? line.chapter.variants.front() : line.chapter.variant(command.variant);
  if (line.app.get_option(option)->count() == 0) value = variant.workload->training_defaults().*size;
}

void add_optimizer_name(const CommandLine& line, std::string& optimizer) {
  add(line.app, "--optimizer", "NAME", optimizer, "adam, sgd or integer",
      one_of({"adam", "sgd", "integer"}, {{"adamw", "adam is Adam without weight decay"}}))
      ->capture_default_str();
}

void add_saving(const CommandLine& line, const std::string& folder, const std::string& help,
                std::string& save, SaveForm& form) {
  add(line.app, folder, "DIR", save, help, path());
  add(line.app, "--format", "NAME", form.format,
      "gathered (one file), sharded (files of limited size), distributed (each device writes one)",
      one_of({"gathered", "sharded", "distributed"}))
      ->capture_default_str();
  add_read(
      line.app, "--max-shard-size", "SIZE",
      [&form](const std::string& text) { form.most_bytes = parse_size("--max-shard-size", text); },
      "With sharded: most bytes of a file, unless one tensor is larger")
      ->default_str("5GB");
}

void add_verification(const CommandLine& line, bool& unverified) {
  line.app.add_flag("--no-verify", unverified, "Do not compare a checkpoint's files with their digests");
}

void add_config(const CommandLine& line, std::string& config) {
  add(line.app, "--config", "FILE", config, "A network as another library describes it: its config.json",
      path());
}

void add_record(const CommandLine& line, Command& command) {
  add(line.app, "--record", "FILE", command.record,
      "Also write to this JSON file what each device called, computed and held (docs/record.md)", path());
}

void Command::complete(const CommandLine& line) {
  if (const int devices = line.group.num_devices(); fault && fault->device >= devices)
    throw Error(Code::usage, "--fault: expected a device of 0 to {}, given device={}", devices - 1,
                fault->device);
  if (!variant.empty()) require_options_of(line.chapter, line.chapter.variant(variant), options);
}

}  // namespace shard
