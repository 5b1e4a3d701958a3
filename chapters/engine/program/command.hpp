#pragma once

/// A command: what a command line asks for.

#include <limits>
#include <optional>
#include <string>

#include "engine/device/communicator/fault.hpp"
#include "engine/program/registry.hpp"
#include "engine/record/log.hpp"

namespace CLI {
class App;
}

namespace shard {

/// The command line of a command, while it is parsed.
struct CommandLine {
  CLI::App& app;  ///< has the command's options
  const Communicator& group;
  const Chapter& chapter;
  const Options& defaults;  ///< the sizes of networks, for --help
};

/// A command with its options. Parsing makes one, which then does not change.
struct Command {
  virtual ~Command() = default;
  /// Adds its options to a command line, which writes them into this object.
  virtual void add_options(const CommandLine& line) = 0;
  /// Called after parsing: replaces what was not given, and refuses what does not fit. \throws Error usage; file
  virtual void complete(const CommandLine& line);
  /// Adds to a record's job what the record says of this command alone.
  virtual void describe(Entry& /*job*/, const Chapter& /*chapter*/) const {}
  /// Carries it out. Called on every device of a group; device 0 prints. Returns an exit code.
  virtual int run(Communicator& group, const Chapter& chapter) const = 0;

  std::string variant = {};  ///< empty: all
  Options options = {};      ///< of the variant and its workload
  bool check_claims = false;
  bool unchecked = false;  ///< reductions do not check that all devices make the same call
  std::string precision = "float32";
  std::optional<Fault> fault = {};
  std::string record = {};  ///< the file of the run's record
  Index record_steps = std::numeric_limits<Index>::max();
};

}  // namespace shard
