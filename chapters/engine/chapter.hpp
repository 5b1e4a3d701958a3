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
  Index bucket_bytes = default_bucket_bytes;
};

/// One way to carry out a chapter's strategy.
struct Variant {
  std::string name;
  std::string summary;  ///< one line for --help
  std::function<std::unique_ptr<ShardedEngine>(const EngineOptions&)> make;
  std::function<Costs(const Setting&)> costs;
  bool has_micro_batches = false;  ///< whether it works through its rows in pieces when told to
  bool has_buckets = false;        ///< whether it reduces gradients in buckets of a given size
};

/// What a chapter says of itself: its programs, tests and tables are made from this.
struct Chapter {
  std::string number;  ///< "03"
  std::string title;   ///< "tensor parallel"
  std::vector<Variant> variants;
};

/// The main function of every chapter program: `train`, `gradients` and `infer`; see --help.
int chapter_main(int argc, char** argv, const Chapter& chapter);

}  // namespace shard
