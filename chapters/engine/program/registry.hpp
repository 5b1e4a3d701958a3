#pragma once

/// What chapters say of themselves. Each has a chapter.cpp with one RegisteredChapter in it; programs, tests
/// and tables are made from these.

#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "engine/sharded_engine.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// One way to carry out a chapter's strategy.
struct Variant {
  std::string name;
  std::string summary;  ///< one line for --help
  /// An engine on this group of devices.
  std::function<std::unique_ptr<ShardedEngine>(Communicator& group, const Workload&, const Options&)> make =
      {};
  /// What it sends, computes and holds in a step. None: its figures are shown without a proof.
  std::function<Costs(const Setting&, const Options&)> costs = {};
  /// Its own options. Others are refused.
  std::vector<OptionText> options = {};
  /// Options worth testing: pieces that are ragged, buckets of one gradient, ...
  std::vector<Options> tested_with = {Options()};
  /// Options it is measured with by ./tests/bench.
  Options benchmarked_with = {};
  /// Says what it cannot do. \throws Error usage
  std::function<void(int devices, const Workload&, const Options&)> require = {};
  const WorkloadKind* workload = nullptr;  ///< the chapter's, unless it has its own
  /// The variant of this chapter whose loss curve it must follow. None: the first chapter's, as deep.
  std::string reference = {};

  /// Whether `require` finds nothing.
  bool accepts(int devices, const Workload& network, const Options& given) const;
  bool has_option(const std::string& option) const;
};

/// A chapter. Its number is its folder's, and so is its title unless it has one.
struct Chapter {
  std::string title = {};
  const WorkloadKind* workload = nullptr;  ///< what its variants train
  std::vector<Variant> variants = {};
  /// What the field calls its variants: {"ddp", "all-reduce"}.
  std::map<std::string, std::string> strategies = {};
  /// A chapter without variants has a command of its own: `words` are its arguments. Returns an exit code.
  std::function<int(Communicator& group, const std::vector<std::string>& words)> command = {};

  std::string folder = {};  ///< "03_tensor_parallel"
  std::string number = {};  ///< "03"; none for a folder without one

  /// \throws Error usage when there is none of that name
  const Variant& variant(const std::string& name) const;
  /// "03", or the folder where that has no number: what people call it.
  const std::string& short_name() const { return number.empty() ? folder : number; }
};

/// Puts a chapter among those of the program. `where` says which folder it lies in: there is nothing to type.
class RegisteredChapter {
 public:
  explicit RegisteredChapter(Chapter chapter,
                             const std::source_location& where = std::source_location::current());
};

/// The chapters of this program, by folder.
const std::vector<Chapter>& chapters();
/// The chapter of a program or a test that has just one. \throws Error internal
const Chapter& only_chapter();
/// The chapter called "03", "03_tensor_parallel" or "tensor_parallel". \throws Error usage
const Chapter& find_chapter(const std::string& name);

/// A variant by a name of the field.
struct Strategy {
  const Chapter* chapter;
  const Variant* variant;
};
/// By an alias of a chapter or the name of a variant. \throws Error usage when no chapter has it, or several
Strategy find_strategy(const std::string& name);
/// \throws Error usage when two chapters claim one alias, or an alias is of no variant
void require_distinct_strategies();

}  // namespace shard
