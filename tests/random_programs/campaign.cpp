// campaign: runs random legal programs on the devices of its job, one after the other. `--fault` plants a
// fault in one of them, `--draw` draws one and prints how it must end, `--print` prints a program.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

#include "tests/harness/delays.hpp"
#include "tests/random_programs/ends.hpp"
#include "tests/random_programs/execution.hpp"
#include "tests/random_programs/random.hpp"

using namespace shard;
using namespace shard::testing;

namespace {

struct Options {
  std::uint64_t seed = 1;
  Index first = 1, last = 1;
  int devices = 2;
  std::string fault, draw;
  bool prints = false, delays = false, is_disturbed = false;
};

/// \throws Error usage when there is no such device or call
Fault given_fault(const Plan& plan, const std::string& text) {
  const std::optional<Fault> fault = fault_from(text);
  if (!fault) throw Error(Code::usage, "--fault: expected device=2,call=17,kind=kill, given " + text);
  if (fault->device >= plan.devices || fault->call > calls_of(plan, fault->device))
    throw Error(Code::usage, "--fault: expected a call that the program makes, given " + text);
  return *fault;
}

/// A random call of a random device, at which a fault of this kind happens.
std::string drawn_fault(const Plan& plan, const std::string& kind) {
  const std::optional<Fault> any = fault_from("device=0,call=1,kind=" + kind);
  if (!any) throw Error(Code::usage, "--draw: expected a kind of fault, given " + kind);
  Random random({plan.seed, static_cast<std::uint64_t>(plan.program), static_cast<std::uint64_t>(any->kind)});
  int device = random.below(plan.devices);
  while (calls_of(plan, device) == 0) device = (device + 1) % plan.devices;
  const int call = random.between(1, static_cast<int>(calls_of(plan, device)));
  return fmt::format("device={},call={},kind={}", device, call, kind);
}

/// The commands without devices.
int show(const Options& options) try {
  const Plan plan = generate_plan(options.seed, options.first, options.devices);
  if (options.prints) fmt::print("{}", describe(plan));
  const std::string text = options.draw.empty() ? options.fault : drawn_fault(plan, options.draw);
  if (!text.empty())
    fmt::print("{} {}\n", text, fmt::join(expected_codes(plan, given_fault(plan, text)), " "));
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return error.exit_code();
}

/// Runs one program. Returns the number of wrong results on this device.
int run_program(const Plan& plan, Communicator& world, const Options& options) {
  try {
    if (options.fault.empty()) return execute(plan, world, std::nullopt, options.is_disturbed);
    const Fault fault = given_fault(plan, options.fault);
    FaultyCommunicator faulty(world, fault);
    return execute(plan, faulty, fault, options.is_disturbed);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("program {}: {}", plan.program, error.what()));
  }
}

int run(Communicator& world, const Options& options) {
  int wrong = 0;
  for (Index program = options.first; program <= options.last; ++program) {
    const Plan plan = generate_plan(options.seed, program, world.num_devices());
    wrong += run_program(plan, world, options);
    if (world.device_id() != 0) continue;
    fmt::print("program {}: {} calls\n", program, plan.items.size());
    std::fflush(stdout);
  }
  return wrong == 0 ? 0 : static_cast<int>(Code::differs);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::optional<Index> program;
  CLI::App app("Random legal programs", "campaign");
  app.add_option("--seed", options.seed, "Of all programs");
  app.add_option("--first", options.first, "The first program to run");
  app.add_option("--last", options.last, "The last one");
  app.add_option("--program", program, "The only one");
  app.add_option("--fault", options.fault, "What goes wrong in it: device=2,call=17,kind=kill");
  app.add_flag("--print", options.prints,
               "Print the program, and with --fault how it must end; runs nothing");
  app.add_option("--draw", options.draw, "Print a fault of this kind, and how it must end; runs nothing");
  app.add_flag("--delays", options.delays, "Let one of 32 messages come up to 80 ms late");
  app.add_flag("--disturbed", options.is_disturbed,
               "Make and free tensors between calls and their waits; one device is slow");
  app.add_option("--devices", options.devices, "For --print and --draw: on how many devices it would run");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(Code::usage);
  }
  if (program) options.first = options.last = *program;
  if (options.prints || !options.draw.empty()) return show(options);
  if (options.delays) delay_messages({1 / 32., 1 / 32., std::chrono::milliseconds(80)});
  return run_on_devices(argc, argv, [&](Communicator& world) { return run(world, options); });
}
