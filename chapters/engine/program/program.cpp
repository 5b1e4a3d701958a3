/// The command line that all chapter programs share.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <type_traits>

#include "engine/device/checked_communicator.hpp"
#include "engine/files/safetensors_header.hpp"
#include "engine/program/commands.hpp"
#include "engine/workloads/digits.hpp"

namespace shard {

namespace {

const std::vector<std::string> commands = {"train", "gradients", "infer", "variants", "strategies"};
const std::vector<std::string> precisions = {"float32", "tf32", "bf16"};  // as in enum Precision

/// Text of the user's in a message.
std::string shown(const std::string& text) {
  return text.empty() ? "''" : safetensors::printable(text, 60);
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
const CLI::Validator real_from_0 =
    number<double>("a finite number, 0 or more", [](double x) { return x >= 0 && std::isfinite(x); });
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

/// How the router of a mixture chooses.
void add_routing(CLI::App& command, Options& o) {
  auto factor = [](const std::string& text) {
    const CLI::Validator positive_factor = number<double>("a finite number above 0, or none",
                                                          [](double x) { return x > 0 && std::isfinite(x); });
    return text == "none" ? std::string() : positive_factor(text);
  };
  command.add_option("--top-k", o.top_k, "Experts for each token (default: 1 in switch, 2 in top-k)")
      ->check(positive)
      ->type_name("N");
  command
      .add_option(
          "--capacity-factor", o.capacity_factor,
          "An expert takes this many times its even share of the choices, and drops the rest; or none")
      ->check(CLI::Validator(factor, ""))
      ->type_name("X")
      ->capture_default_str();
  command.add_option("--aux-weight", o.engine.routing.aux_weight, "Of the loss that balances the load")
      ->check(real_from_0)
      ->type_name("X")
      ->capture_default_str();
  command
      .add_option(
          "--skew", o.engine.routing.skew,
          "Makes the router prefer low experts: lowers the logit of expert e by X e. Exact mode: by 0")
      ->check(real_from_0)
      ->type_name("X")
      ->capture_default_str();
}

/// How a pipeline is cut.
void add_stages(CLI::App& command, const Chapter& chapter, Options& o) {
  if (std::ranges::any_of(chapter.variants, &Variant::has_virtual_stages))
    command
        .add_option("--virtual-stages", o.engine.virtual_stages, "Stages a device, where it may have several")
        ->check(positive)
        ->type_name("N")
        ->capture_default_str();
  if (std::ranges::any_of(chapter.variants, &Variant::has_stages))
    command
        .add_option("--stages", o.engine.stages,
                    "How layers are cut into stages: equal, by flops or bytes, or a list such as 3,2,2,1")
        ->type_name("HOW")
        ->capture_default_str();
}

void add_common(CLI::App& command, const Chapter& chapter, Options& o) {
  std::vector<std::string> names;
  for (const Variant& v : chapter.variants) names.push_back(v.name);
  command.add_option("--variant", o.variant, "How to carry out the strategy:" + list_of(chapter.variants))
      ->check(one_of(names))
      ->type_name("NAME")
      ->default_val(names.front());
  if (std::ranges::any_of(chapter.variants, &Variant::has_micro_batches))
    command
        .add_option("--micro-batches", o.engine.micro_batches,
                    "Pieces in which a device works through its rows")
        ->check(positive)
        ->type_name("N")
        ->capture_default_str();
  if (std::ranges::any_of(chapter.variants, &Variant::has_buckets))
    command
        .add_option("--bucket-bytes", o.engine.bucket_bytes, "Gradients of this size go into one all-reduce")
        ->check(positive)
        ->type_name("N")
        ->capture_default_str();
  add_stages(command, chapter, o);
  if (chapter.network.has_experts) add_routing(command, o);
  command
      .add_option(
          "--precision", o.precision,
          "How matrix products round their operands: float32 (not at all), tf32 (to 11 bits) or bf16 (8)")
      ->check(one_of(precisions))
      ->type_name("NAME")
      ->capture_default_str();
  command.add_flag("--check", o.check_claims, "Verify that tensors said to be the same on every device are");
}

void add_experts(CLI::App& train, Options& o) {
  o.model.num_experts = 7;  // so that few numbers of devices divide them evenly
  train.add_option("--experts", o.model.num_experts, "Experts, each a stack of these layers")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
}

void add_model(CLI::App& train, Options& o) {
  train
      .add_option("--layers", o.model.num_layers,
                  "Weight matrices; an even number, as the output is an image again")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
  train.add_option("--hidden-dim", o.model.hidden_dim, "Width of the hidden activations")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
}

void add_optimizer(CLI::App& train, Options& o) {
  train.add_option("--optimizer", o.optimizer, "adam, sgd or integer")
      ->check(one_of({"adam", "sgd", "integer"}))
      ->type_name("NAME")
      ->capture_default_str();
  train.add_option("--learning-rate", o.learning_rate, "Step size")
      ->check(positive_real)
      ->type_name("X")
      ->capture_default_str();
}

void add_train(CLI::App& app, const Chapter& chapter, Options& o) {
  CLI::App* train = app.add_subcommand(
      "train",
      "Learn to remove noise from handwritten digits, and hold gradients, bytes and memory against the\n"
      "unsharded network and the closed forms (the default)");
  add_common(*train, chapter, o);
  train->add_option("--steps", o.steps, "Optimizer steps")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
  train->add_option("--batch", o.batch, "Rows of the global batch")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
  add_model(*train, o);
  if (chapter.network.has_experts) add_experts(*train, o);
  add_optimizer(*train, o);
  train->add_option("--seed", o.seed, "Of initial weights, choice of digits and noise")
      ->check(whole_number)
      ->type_name("N")
      ->capture_default_str();
  train->add_option("--data", o.data, "The digits, 64 pixels of 0..16 and a label a line")
      ->type_name("FILE")
      ->default_val(Digits::default_path());
  train->add_option("--report", o.report, "Also write the figures to this JSON file")->type_name("FILE");
}

std::string parameters_text(const Chapter& chapter) {
  return chapter.network.has_experts ? "safetensors file with router/weights, expert_0/layer_0/weights, ..."
                                     : "safetensors file with layer_0/weights, layer_1/weights, ...";
}

void add_gradients(CLI::App& app, const Chapter& chapter, Options& o) {
  CLI::App* gradients = app.add_subcommand(
      "gradients",
      "Write output, input gradient and every weight gradient of a batch, to hold against another framework");
  add_common(*gradients, chapter, o);
  gradients->add_option("--params", o.params, parameters_text(chapter))->type_name("FILE")->required();
  gradients->add_option("--batch", o.batch_file, "safetensors file with input and output_grad")
      ->type_name("FILE")
      ->required();
  gradients->add_option("--out", o.out, "safetensors file to write")->type_name("FILE")->required();
}

void add_infer(CLI::App& app, const Chapter& chapter, Options& o) {
  CLI::App* infer =
      app.add_subcommand("infer", "Read rows of numbers from standard input, write the network's output");
  add_common(*infer, chapter, o);
  infer->add_option("--params", o.params, parameters_text(chapter))->type_name("FILE")->required();
  infer->add_option("--batch", o.batch, "Rows that go through the network together")
      ->check(positive)
      ->type_name("N")
      ->capture_default_str();
}

void add_variants(CLI::App& app) {
  app.add_subcommand("variants", "List the variants' names, one a line");
  app.add_subcommand("strategies", "List names of strategies, each with the variant that it is");
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

/// The command line's words on routing, and the variant's, put together.
void settle_routing(const Variant& variant, Options& o) {
  Routing& routing = o.engine.routing;
  if (o.capacity_factor == "none")
    routing.capacity_factor.reset();
  else
    routing.capacity_factor = std::stod(o.capacity_factor);
  routing.top_k = o.top_k == 0 ? variant.top_k : o.top_k;
  if ((variant.top_k == 1) != (routing.top_k == 1))
    throw Error(Code::usage, fmt::format("--top-k: expected {} for the variant {}, given {}",
                                         variant.top_k == 1 ? "1" : "2 or more", variant.name, o.top_k));
  if (o.command == "train") require_experts(routing, o.model.num_experts);
}

int run(Communicator& world, const Chapter& chapter, Options& options) {
  if (options.command == "variants") {
    for (const Variant& v : chapter.variants)
      if (world.device_id() == 0) fmt::print("{}\n", v.name);
    return 0;
  }
  if (options.command == "strategies") {
    std::map<std::string, std::string> names = chapter.other_names;
    for (const Variant& v : chapter.variants) names[v.name] = v.name;
    for (const auto& [name, variant] : names)
      if (world.device_id() == 0) fmt::print("{} {}\n", name, variant);
    return 0;
  }
  CheckedCommunicator checked(world);
  Communicator& group = options.check_claims ? checked : world;
  set_precision(
      static_cast<Precision>(std::ranges::find(precisions, options.precision) - precisions.begin()));
  auto variant = std::ranges::find(chapter.variants, options.variant, &Variant::name);
  if (options.engine.micro_batches > 1 && !variant->has_micro_batches)
    throw Error(Code::usage,
                fmt::format("--micro-batches: expected 1 for the variant {}, which does not cut its rows "
                            "into pieces, given {}",
                            variant->name, options.engine.micro_batches));
  if (chapter.network.has_experts) settle_routing(*variant, options);
  if (options.command == "gradients") return gradients(group, chapter, *variant, options);
  if (options.command == "infer") return infer(group, chapter, *variant, options);
  if (options.model.num_layers % 2 == 1)
    throw Error(Code::usage,
                fmt::format("train: --layers: expected an even number, as the output is an image again, "
                            "given {}",
                            options.model.num_layers));
  return train(group, chapter, *variant, options);
}

int parse_and_run(Communicator& world, int argc, char** argv, const Chapter& chapter) {
  std::string name = std::filesystem::path(argv[0]).filename();
  CLI::App app(
      fmt::format(
          "Chapter {} of shardbook, {}: a two-layer ReLU MLP, or a deeper stack of them, on {} device{}",
          chapter.number, chapter.title, world.num_devices(),
          world.num_devices() == 1 ? " (mpirun -n 4 for more)" : "s"),
      name);
  app.require_subcommand(1);
  Options options;
  options.engine = chapter.defaults;
  options.model.num_layers = chapter.default_layers(world.num_devices());
  add_train(app, chapter, options);
  add_gradients(app, chapter, options);
  add_infer(app, chapter, options);
  add_variants(app);
  std::vector<std::string> words = with_command({argv + 1, argv + argc});
  const std::string& command = words.front();
  if (command[0] != '-' && std::ranges::find(commands, command) == commands.end())
    throw Error(Code::usage, fmt::format("{}: expected a command, {}, given {} (--help lists the options)",
                                         name, fmt::join(commands, " or "), shown(command)));
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 takes them
  } catch (const CLI::CallForHelp&) {
    if (world.device_id() == 0) fmt::print("{}", app.help("", CLI::AppFormatMode::All));
    return 0;
  } catch (const CLI::ParseError& error) {
    throw Error(Code::usage, fmt::format("{} {}: {} (--help lists the options)", name, command,
                                         explain(app, command, error)));
  }
  options.command = app.get_subcommands().front()->get_name();
  return run(world, chapter, options);
}

}  // namespace

int chapter_main(int argc, char** argv, const Chapter& chapter) {
  auto run_and_print = [&](Communicator& world) {
    try {
      int code = parse_and_run(world, argc, argv, chapter);
      if (std::fflush(stdout) == 0) return code;
      throw std::system_error(errno, std::generic_category());
    } catch (const std::system_error& error) {  // fmt::print throws it, too
      throw Error(Code::file, fmt::format("standard output: expected to write the results, given {}",
                                          error.code().message()));
    }
  };
  return run_on_devices(argc, argv, run_and_print);
}

}  // namespace shard
