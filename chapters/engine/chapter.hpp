#pragma once

#include <algorithm>
#include <functional>
#include <map>
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
  Index virtual_stages = 2;
  std::string stages = "equal";
};

/// One way to carry out a chapter's strategy.
struct Variant {
  std::string name;
  std::string summary;  ///< one line for --help
  std::function<std::unique_ptr<ShardedEngine>(const EngineOptions&)> make;
  std::function<Costs(const Setting&)> costs;
  bool has_micro_batches = false;   ///< whether it works through its rows in pieces when told to
  bool has_buckets = false;         ///< whether it reduces gradients in buckets of a given size
  bool has_stages = false;          ///< whether it cuts the layers into stages: at least one a device
  bool has_virtual_stages = false;  ///< whether a device may have several of them

  /// Fewer layers than this are refused.
  Index min_layers(int devices, const EngineOptions& options) const {
    return has_stages ? devices * (has_virtual_stages ? options.virtual_stages : 1) : 1;
  }
};

/// What a chapter says of itself: its programs, tests and tables are made from this.
struct Chapter {
  std::string number;  ///< "03"
  std::string title;   ///< "tensor parallel"
  std::vector<Variant> variants;
  EngineOptions defaults = {};  ///< of the command line
  std::map<std::string, std::string> other_names = {};  ///< of variants, as the field calls them: "ddp"

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
