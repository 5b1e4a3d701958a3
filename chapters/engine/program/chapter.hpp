#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/proof/costs.hpp"
#include "engine/proof/exact.hpp"
#include "engine/sharded_engine.hpp"

namespace shard {

/// One way to carry out a chapter's strategy.
struct Variant {
  std::string name;
  std::string summary;  ///< one line for --help
  std::function<std::unique_ptr<ShardedEngine>(Communicator& group, const EngineOptions&)> make;
  std::function<Costs(const Setting&)> costs;
  bool has_micro_batches = false;   ///< whether it works through its rows in pieces when told to
  bool has_buckets = false;         ///< whether it reduces gradients in buckets of a given size
  bool has_stages = false;          ///< whether it cuts the layers into stages: at least one a device
  bool has_virtual_stages = false;  ///< whether a device may have several of them
  Index top_k = 0;                  ///< experts a token in a mixture, when not told; 1: always; 0: no mixture
  std::string reference =
      {};  ///< variant whose loss curve it must follow; none: the first chapter's, as deep

  /// Fewer layers than this are refused.
  Index min_layers(int devices, const EngineOptions& options) const {
    return has_stages ? devices * (has_virtual_stages ? options.virtual_stages : 1) : 1;
  }
};

/// What a chapter trains, and how its exact problems are made and solved: the stack, unless it says
/// otherwise.
struct Network {
  bool has_experts = false;
  std::function<Model(const Checkpoint&)> model_of = shard::model_of;
  /// \name Exact problems, as in exact.hpp
  /// @{
  using Solution = std::map<std::string, HostTensor>;
  std::function<ExactProblem(const Model&, const Routing&, Index batch, std::uint64_t seed, const Digits*)>
      exact_problem = [](const Model& model, const Routing&, Index batch, std::uint64_t seed,
                         const Digits* digits) { return make_exact_problem(model, batch, seed, digits); };
  std::function<Solution(const ExactProblem&)> solve = shard::solve;
  /// One in which every number that `devices` devices send matters: for tests that plant mistakes. None:
  /// theirs.
  std::function<ExactProblem(Index num_layers, const Routing&, int devices)> live_problem = {};
  /// Where the choices go of a problem whose rows are divided over so many devices.
  std::function<RoutedCounts(const ExactProblem&, int devices)> route = {};
  /// @}
};

/// What a chapter says of itself: its programs, tests and tables are made from this.
struct Chapter {
  std::string number;  ///< "03"
  std::string title;   ///< "tensor parallel"
  std::vector<Variant> variants;
  EngineOptions defaults = {};                          ///< of the command line
  std::map<std::string, std::string> other_names = {};  ///< of variants, as the field calls them: "ddp"
  Network network = {};

  /// Layers that are enough for every variant, an even number.
  Index default_layers(int devices) const {
    Index layers = 2;
    for (const Variant& v : variants) layers = std::max(layers, v.min_layers(devices, defaults));
    return layers + layers % 2;
  }
};

/// The main function of every chapter program: `train`, `gradients` and `infer`; see --help.
int chapter_main(int argc, char** argv, const Chapter& chapter);

}  // namespace shard
