#pragma once

/// A network as another library builds it: a tree of modules, under that library's names and classes.

#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.hpp"

namespace shard::dispatch {

/// A tensor that a module has itself.
struct ModuleTensor {
  std::string name;  ///< in its module: "weight"
  Index elements = 0;
  std::string dtype = "F32";  ///< in the spelling of safetensors
  bool is_buffer = false;     ///< computed when the module is made; in no file
};

struct Module {
  std::string name;        ///< in its parent: "self_attn"; the whole network has none
  std::string class_name;  ///< "MistralAttention"
  std::vector<ModuleTensor> tensors = {};
  std::vector<Module> children = {};
};

/// What one module computes: which activations it reads, and which it writes. A module with children may
/// compute something itself, too, such as the sum of a residual block.
struct Step {
  std::string module;  ///< its path: "model.layers.0.self_attn.q_proj"
  std::vector<std::string> reads;
  std::vector<std::string> writes;
};

struct Network {
  std::string summary;  ///< "mistral, 2 blocks of 12, ..."
  Module root;
  std::vector<std::vector<std::string>> tied;  ///< paths of tensors that are one; each list is sorted
  std::vector<Step> flow;                      ///< in the order of execution
};

/// "a.b"; just `name` below the root, whose path is empty.
std::string path_of(const std::string& parent, const std::string& name);
/// The path without its last part; that of the root where it has one part.
std::string parent_of(const std::string& path);
/// Whether a path is that of a module, or of something in it.
bool is_within(const std::string& path, const std::string& module);
/// The module of a path; null if there is none.
const Module* find_module(const Module& root, const std::string& path);
/// The paths of all modules, parents first.
std::vector<std::string> all_modules(const Module& root);
/// The paths of all tensors of a network, in the order of the tree.
std::vector<std::pair<std::string, const ModuleTensor*>> all_tensors(const Module& root);

}  // namespace shard::dispatch
