#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/costs.hpp"
#include "engine/sharded_engine.hpp"

namespace shard {

/// What the command line decides about an engine beside its model.
struct EngineOptions {
  Index micro_batches = 1;
};

/// One way to carry out a chapter's strategy.
struct Variant {
  std::string name;
  std::string summary;  ///< one line for --help
  std::function<std::unique_ptr<ShardedEngine>(const EngineOptions&)> make;
  std::function<Costs(const Setting&)> costs;
};

/// What a chapter says of itself: its programs, tests and tables are made from this.
struct Chapter {
  std::string number;  ///< "03"
  std::string title;   ///< "tensor parallel"
  std::vector<Variant> variants;
  bool has_micro_batches = false;
};

/// The main function of every chapter program: `train`, `gradients` and `infer`; see --help.
int chapter_main(int argc, char** argv, const Chapter& chapter);

}  // namespace shard
