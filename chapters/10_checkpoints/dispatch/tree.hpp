#pragma once

/// A network in another library: a tree of modules, with that library's names and classes.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.hpp"

namespace shard::dispatch {

/// A tensor of a module, not of its children.
struct ModuleTensor {
  std::string name;  ///< within the module: "weight"
  Index elements = 0;
  std::string dtype = "F32";  ///< in the spelling of safetensors; empty: that of config.json
  bool is_buffer = false;     ///< computed when the module is made, and not stored in files
};

struct Module {
  std::string name;        ///< within the parent: "self_attn"; empty for the root
  std::string class_name;  ///< "MistralAttention"
  std::vector<ModuleTensor> tensors = {};
  std::vector<Module> children = {};
};

/// One computation of a module: the activations that it reads, and those that it writes. A module with
/// children may have steps of its own, such as the sum of a residual block.
struct Step {
  std::string module;  ///< its path: "model.layers.0.self_attn.q_proj"
  std::vector<std::string> reads;
  std::vector<std::string> writes;
};

struct Network {
  std::string summary;  ///< "mistral, 2 blocks of 12, ..."
  Module root;
  std::vector<std::vector<std::string>> tied;  ///< groups of paths of tied tensors, each sorted
  std::vector<Step> flow;                      ///< in the order of execution
};

/// "a.b"; just `name` below the root, whose path is empty.
std::string path_of(const std::string& parent, const std::string& name);
/// The path without its last part; empty, the root, for one part.
std::string parent_of(const std::string& path);
/// Whether a path is a module's, or inside it.
bool is_within(const std::string& path, const std::string& module);
/// The module of a path; null if there is none.
const Module* find_module(const Module& root, const std::string& path);
/// The paths of all modules, parents first.
std::vector<std::string> all_modules(const Module& root);
/// The paths of all tensors of a network, in the order of the tree.
std::vector<std::pair<std::string, const ModuleTensor*>> all_tensors(const Module& root);

/// The bytes of each module of a network, with its children and buffers. Tied tensors count once, at the
/// first of them.
class ModuleSizes {
 public:
  /// `dtype`: floating tensors are converted to it, if it is smaller than their own.
  ModuleSizes(const Network& network, const std::optional<std::string>& dtype);

  /// The bytes of a module or a tensor; 0 if it has none of its own.
  Index operator[](const std::string& path) const;
  Index total() const { return (*this)[""]; }
  /// The paths with bytes, parents first, in the order of the tensors; parameters before buffers.
  const std::vector<std::string>& paths() const { return paths_; }
  /// The mean bytes of the modules that have no children with bytes.
  Index mean_of_leaves() const;

 private:
  void add(const std::string& tensor, Index bytes);

  std::map<std::string, Index> bytes_;
  std::vector<std::string> paths_;
};

}  // namespace shard::dispatch
