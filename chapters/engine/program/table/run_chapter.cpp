#include "engine/program/table/run_chapter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/device/communicator/checked_communicator.hpp"
#include "engine/program/command_line.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/commands/costs.hpp"
#include "engine/program/commands/owns.hpp"
#include "engine/program/commands/with_parameters.hpp"
#include "engine/program/table/parse.hpp"
#include "engine/program/training/train.hpp"
#include "engine/record/recording.hpp"

namespace shard {

namespace {

/// Prints the names of the variants.
struct VariantsCommand : Command {
  void add_options(const CommandLine&) override {}
  int run(Communicator& group, const Chapter& chapter) const override {
    for (const Variant& v : chapter.variants)
      if (group.device_id() == 0) fmt::print("{}\n", v.name);
    return 0;
  }
};

bool has_tokens(const Chapter& chapter) {
  return std::ranges::any_of(chapter.variants, [](const Variant& v) { return v.workload->has_tokens(); });
}

/// A row: what --help says of a command, which has its options and what it does.
template <class C>
CommandRow row(const char* name, const char* summary, bool (*is_in)(const Chapter&) = nullptr) {
  return {name, summary, [] { return std::make_shared<C>(); }, is_in};
}

/// All commands, in the order of --help.
const std::vector<CommandRow>& table_of_commands() {
  static const std::vector<CommandRow> all = {
      row<TrainCommand>("train",
                        "Learn, and hold gradients, bytes and memory against the unsharded network and the "
                        "closed forms (the default)"),
      row<SaveCommand>("save", "Save parameters as a checkpoint, from the devices that hold them"),
      row<GradientsCommand>("gradients",
                            "Write output, input gradient and every weight gradient of a batch, to hold "
                            "against another framework"),
      row<InferCommand>("infer",
                        "Read rows of numbers, or tokens, from standard input, write the network's output"),
      row<GenerateCommand>("generate",
                           "Write the tokens that follow a prompt, each the likeliest after all before it",
                           has_tokens),
      row<CostsCommand>(
          "costs",
          "Print what a step of each variant sends, computes and holds: it runs on tensors without memory"),
      row<OwnsCommand>("owns", "Print which part of each parameter each device has"),
      row<VariantsCommand>("variants", "List the variants' names, one a line"),
  };
  return all;
}

/// What a record says of a run.
Entry job_of(const Communicator& group, const Chapter& chapter, const Chosen& chosen) {
  const Command& command = *chosen.command;
  Entry job = job_of(group, chapter, chosen.name, command.variant);
  Entry options = Entry::object();
  for (const std::string& name : command.options.names()) options[name] = command.options.given(name);
  job["options"] = options;
  job["precision"] = command.precision;
  if (command.fault) job["fault"] = text_of(*command.fault);
  command.describe(job, chapter);
  return job;
}

int run_checked(Communicator& believing, const Chapter& chapter, const Command& command) {
  set_agreement(!command.unchecked);
  set_precision(
      static_cast<Precision>(std::ranges::find(precisions, command.precision) - precisions.begin()));
  if (!command.check_claims) return command.run(believing, chapter);
  CheckedCommunicator checking(believing);
  return command.run(checking, chapter);
}

/// Runs the command with the planned fault. \throws Error usage when there is no such call
int run_with_fault(Communicator& group, const Chapter& chapter, const Command& command) {
  if (!command.fault) return run_checked(group, chapter, command);
  FaultyCommunicator faulty(group, *command.fault);
  const int code = run_checked(faulty, chapter, command);
  const auto& [device, call, kind] = *command.fault;
  const Index calls = group.exchange("calls", faulty.calls())[static_cast<std::size_t>(device)];
  if (calls < call)
    throw Error(Code::usage, "--fault: expected one of device {}'s {} calls, given call={}", device, calls,
                call);
  return code;
}

/// The devices of one process have the same words, so the first one parses them.
const Chosen& parsed_once(const Communicator& group, const Chapter& chapter,
                          const std::vector<std::string>& words) {
  struct Parsed {
    const Chapter* chapter = nullptr;
    int devices = 0;
    std::vector<std::string> words = {};
    Chosen chosen = {};
  };
  static Parsed last;
  if (last.chapter != &chapter || last.devices != group.num_devices() || last.words != words)
    last = {&chapter, group.num_devices(), words, parse(table_of_commands(), group, chapter, words)};
  return last.chosen;
}

}  // namespace

int run_chapter(Communicator& group, const Chapter& chapter, const std::vector<std::string>& words) {
  if (chapter.command) return chapter.command(group, words);
  const Chosen chosen = parsed_once(group, chapter, words);
  if (!chosen.command) return 0;
  const Command& command = *chosen.command;
  if (command.record.empty()) return run_with_fault(group, chapter, command);
  const Recording recording{.path = command.record, .steps = command.record_steps, .job = [&] {
                              return job_of(group, chapter, chosen);
                            }};
  return run_recorded(group, recording,
                      [&](Communicator& recorded) { return run_with_fault(recorded, chapter, command); });
}

}  // namespace shard
