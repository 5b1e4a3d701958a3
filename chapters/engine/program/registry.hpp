#pragma once

/// The registry of chapters. Each chapter describes itself in a chapter.cpp with one RegisteredChapter.
/// Programs, tests and tables are made from these descriptions.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/sharded_engine.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// A variant: one form of a chapter's strategy, with its engine.
struct Variant {
  std::string name;
  std::string summary;  ///< one line for --help
  /// Makes an engine on this group of devices.
  std::function<std::unique_ptr<ShardedEngine>(Communicator& group, const Workload&, const Options&)> make =
      {};
  /// The closed forms of what it sends, computes and holds in a step. They may be left out; then its figures
  /// are shown without a proof.
  std::function<Costs(const Setting&, const Options&)> costs = {};
  /// The options that this variant declares. The command line refuses others.
  std::vector<OptionText> options = {};
  /// Option values that tests use, for example pieces of different sizes or buckets of one gradient.
  std::vector<Options> tested_with = {Options()};
  /// The same where they depend on the number of devices, for example the sizes of a mesh.
  std::function<std::vector<Options>(int devices)> tested_on = {};
  /// Option values that ./tests/bench uses.
  Options benchmarked_with = {};
  /// Refuses a network or options that this variant cannot run. \throws Error usage
  std::function<void(int devices, const Workload&, const Options&)> require = {};
  const WorkloadKind* workload = nullptr;  ///< the chapter's, unless it has its own
  /// Whether the chapter's other variants train their usual network even where it is too small for this one.
  bool is_deeper = false;
  /// Whether it divides nothing: the engine that all others of such a network must equal (Workload::unsharded).
  bool is_reference = false;

  /// Whether `require` finds nothing.
  bool accepts(int devices, const Workload& network, const Options& given) const;
  bool has_option(const std::string& option) const;
  /// An option of this name that this variant or its workload declares.
  std::optional<OptionText> declared(const std::string& option) const;
  /// What tests use on this number of devices: `tested_on`, or else `tested_with`.
  std::vector<Options> test_options(int devices) const;
};

/// What the field calls a variant: {"ddp", "all-reduce"}.
struct Alias {
  std::string name;
  std::string variant;
};

/// A chapter. Its number comes from the name of its folder, and so does its title, unless it sets one.
struct Chapter {
  std::string title = {};
  const WorkloadKind* workload = nullptr;  ///< what its variants train
  std::vector<Variant> variants = {};
  std::vector<Alias> strategies = {};
  /// A chapter without variants has a command of its own: `words` are its arguments. Returns an exit code.
  std::function<int(Communicator& group, const std::vector<std::string>& words)> command = {};

  std::string folder = {};  ///< "03_tensor_parallel"
  std::string number = {};  ///< "03"; none for a folder without one

  /// \throws Error usage when there is none of that name
  const Variant& variant(const std::string& name) const;
  /// "03", or the folder where that has no number: what people call it.
  const std::string& short_name() const { return number.empty() ? folder : number; }
};

/// Adds a chapter to the program. `where` tells the folder by itself, so a chapter does not write its name.
class RegisteredChapter {
 public:
  explicit RegisteredChapter(Chapter chapter, SourceLine where = SourceLine::current());
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

// What every chapter.cpp would compile again is compiled once, in registry.cpp.
extern template class std::vector<shard::OptionText>;
extern template class std::vector<shard::Options>;
extern template class std::vector<shard::Alias>;
extern template class std::vector<shard::Variant>;
