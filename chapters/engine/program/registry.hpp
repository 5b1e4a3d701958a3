#pragma once

/// The registry of chapters. Each chapter describes itself in a chapter.cpp with one RegisteredChapter.
/// Programs, tests and tables are made from these descriptions.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engines/sharded_engine.hpp"
#include "engine/layouts/mesh.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// A variant: one form of a chapter's strategy, with its engine.
struct Variant {
  std::string name;
  std::string summary;  ///< one line for --help
  /// Makes an engine on this group of devices.
  std::function<std::unique_ptr<ShardedEngine>(Communicator& group, const Workload&, const Options&)> make =
      {};
  /// The closed forms of what the variant sends, computes and holds in a step. Without them, its figures are
  /// shown and not compared.
  std::function<Costs(const Setting&, const Options&)> costs = {};
  /// The options that this variant declares. The command line refuses others.
  std::vector<OptionText> options = {};
  /// Refuses a network or options that this variant cannot run. \throws Error usage
  std::function<void(int devices, const Workload&, const Options&)> require = {};
  const WorkloadKind* workload = nullptr;  ///< null: the chapter's
  /// The mesh that the options ask for. Null: the engine has none. \throws Error usage
  std::function<MeshShape(int devices, const Options&)> mesh = {};
  /// The mesh's axis along which devices do the same on other rows, so that `costs` need not run them all.
  std::string repeats_along = {};
  /// Whether the default network of the chapter's other variants may be too small for this one.
  bool is_deeper = false;
  /// Whether it divides nothing: the results of all other engines of this network must equal its results.
  bool is_reference = false;

  /// Whether `require` accepts.
  bool accepts(int devices, const Workload& network, const Options& given) const;
  bool has_option(const std::string& option) const { return declared(option).has_value(); }
  /// The option of this name, if this variant or its workload declares it.
  std::optional<OptionText> declared(const std::string& option) const;
};

/// A name of the field for a variant: {"ddp", "all-reduce"}.
struct Alias {
  std::string name;
  std::string variant;
};

/// A chapter. Its number comes from the name of its folder, and so does its title, unless it sets one.
struct Chapter {
  std::string title = {};
  const WorkloadKind* workload = nullptr;  ///< the default for its variants
  std::vector<Variant> variants = {};
  std::vector<Alias> strategies = {};
  /// The command of a chapter without variants, with its arguments, `words`. Returns an exit code.
  std::function<int(Communicator& group, const std::vector<std::string>& words)> command = {};

  std::string folder = {};  ///< "03_tensor_parallel"
  std::string number = {};  ///< "03"; empty for a folder without a number

  /// \throws Error usage when no variant has this name
  const Variant& variant(const std::string& name) const;
  /// "03", or the folder if it has no number.
  const std::string& short_name() const { return number.empty() ? folder : number; }
};

/// Adds a chapter to the program. `where` gives the folder, so a chapter does not write its name.
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

/// A chapter and its variant, found by a name of the field.
struct Strategy {
  const Chapter* chapter;
  const Variant* variant;
};
/// Finds an alias or the name of a variant. \throws Error usage when no chapter has it, or several
Strategy find_strategy(const std::string& name);
/// \throws Error usage when two chapters have the same alias, or an alias names no variant
void require_distinct_strategies();

}  // namespace shard

// The instance that every chapter.cpp uses is compiled once, in registry.cpp.
extern template class std::vector<shard::OptionText>;
extern template class std::vector<shard::Options>;
extern template class std::vector<shard::Alias>;
extern template class std::vector<shard::Variant>;
