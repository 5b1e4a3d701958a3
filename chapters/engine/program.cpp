/// The command line that all chapter programs share.

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "engine/commands.hpp"
#include "engine/control_plane.hpp"
#include "engine/digits.hpp"

namespace shard {

namespace {

const auto positive = CLI::Range(Index{1}, Index{1} << 40);

std::string list_of(const std::vector<Variant>& variants) {
  std::string text;
  for (const Variant& v : variants) text += fmt::format("\n    {:<14} {}", v.name, v.summary);
  return text;
}

void add_common(CLI::App& command, const Chapter& chapter, Options& o) {
  std::vector<std::string> names;
  for (const Variant& v : chapter.variants) names.push_back(v.name);
  command.add_option("--variant", o.variant, "How to carry out the strategy:" + list_of(chapter.variants))
      ->check(CLI::IsMember(names))
      ->default_val(names.front());
  if (chapter.has_micro_batches)
    command.add_option("--micro-batches", o.engine.micro_batches, "Pieces in which a device works through its rows")
        ->check(positive)
        ->capture_default_str();
  command.add_flag("--check", o.check_claims, "Verify that tensors said to be the same on every device are");
}

void add_train(CLI::App& app, const Chapter& chapter, Options& o) {
  CLI::App* train = app.add_subcommand(
      "train", "Learn to remove noise from handwritten digits, and hold gradients, bytes and memory against the\n"
               "unsharded network and the closed forms (the default)");
  add_common(*train, chapter, o);
  train->add_option("--steps", o.steps, "Optimizer steps")->check(positive)->capture_default_str();
  train->add_option("--batch", o.batch, "Rows of the global batch")->check(positive)->capture_default_str();
  train->add_option("--layers", o.model.num_layers, "Weight matrices; an even number, as the output is an image again")
      ->check(positive)
      ->capture_default_str();
  train->add_option("--hidden-dim", o.model.hidden_dim, "Width of the hidden activations")
      ->check(positive)
      ->capture_default_str();
  train->add_option("--optimizer", o.optimizer, "adam, sgd or integer")
      ->check(CLI::IsMember({"adam", "sgd", "integer"}))
      ->capture_default_str();
  train->add_option("--learning-rate", o.learning_rate, "Step size")->check(CLI::PositiveNumber)->capture_default_str();
  train->add_option("--seed", o.seed, "Of initial weights, choice of digits and noise")->capture_default_str();
  train->add_option("--data", o.data, "The digits, 64 pixels of 0..16 and a label a line")
      ->default_val(Digits::default_path());
  train->add_option("--report", o.report, "Also write the figures to this JSON file");
}

void add_gradients(CLI::App& app, const Chapter& chapter, Options& o) {
  CLI::App* gradients = app.add_subcommand(
      "gradients", "Write output, input gradient and every weight gradient of a batch, to hold against another framework");
  add_common(*gradients, chapter, o);
  gradients->add_option("--params", o.params, "safetensors file with layer_0/weights, layer_1/weights, ...")->required();
  gradients->add_option("--batch", o.batch_file, "safetensors file with input and output_grad")->required();
  gradients->add_option("--out", o.out, "safetensors file to write")->required();
}

void add_infer(CLI::App& app, const Chapter& chapter, Options& o) {
  CLI::App* infer = app.add_subcommand("infer", "Read rows of numbers from standard input, write the network's output");
  add_common(*infer, chapter, o);
  infer->add_option("--params", o.params, "safetensors file with layer_0/weights, layer_1/weights, ...")->required();
  infer->add_option("--batch", o.batch, "Rows that go through the network together")
      ->check(positive)
      ->capture_default_str();
}

void add_variants(CLI::App& app) { app.add_subcommand("variants", "List the variants' names, one a line"); }

/// `train` is what a chapter does when it is not told otherwise.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  bool has_command = !words.empty() && (words[0].empty() || words[0][0] != '-');
  bool asks_for_help = !words.empty() && (words[0] == "--help" || words[0] == "-h");
  if (!has_command && !asks_for_help) words.insert(words.begin(), "train");
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  return words;
}

int run(const Chapter& chapter, const Options& options) {
  if (options.command == "variants") {
    for (const Variant& v : chapter.variants)
      if (world().device_id() == 0) fmt::print("{}\n", v.name);
    return 0;
  }
  world().check_claims(options.check_claims);
  auto variant = std::ranges::find(chapter.variants, options.variant, &Variant::name);
  if (options.command == "gradients") return gradients(*variant, options);
  if (options.command == "infer") return infer(*variant, options);
  if (options.model.num_layers % 2 == 1)
    throw Error(Code::usage, fmt::format("train: --layers: expected an even number, as the output is an image again, "
                                         "given {}",
                                         options.model.num_layers));
  return train(chapter, *variant, options);
}

int parse_and_run(int argc, char** argv, const Chapter& chapter) {
  std::string name = std::filesystem::path(argv[0]).filename();
  CLI::App app(fmt::format("Chapter {} of shardbook, {}: a two-layer ReLU MLP, or a deeper stack of them, on {} device{}",
                           chapter.number, chapter.title, world().num_devices(),
                           world().num_devices() == 1 ? " (mpirun -n 4 for more)" : "s"),
               name);
  app.require_subcommand(1);
  Options options;
  add_train(app, chapter, options);
  add_gradients(app, chapter, options);
  add_infer(app, chapter, options);
  add_variants(app);
  try {
    app.parse(arguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    if (world().device_id() == 0) fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    std::ranges::replace(what, '\n', ' ');
    throw Error(Code::usage, fmt::format("{}: {} (--help lists the options)", name, what));
  }
  options.command = app.get_subcommands().front()->get_name();
  return run(chapter, options);
}

}  // namespace

int chapter_main(int argc, char** argv, const Chapter& chapter) {
  return run_on_devices(argc, argv, [&] { return parse_and_run(argc, argv, chapter); });
}

}  // namespace shard
