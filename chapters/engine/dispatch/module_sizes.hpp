#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/dispatch/module_tree.hpp"

namespace shard::dispatch {

/// How many bytes each module of a network has, with all that is in it. Tensors that are one count where the
/// first of them stands, and a buffer counts, too.
class ModuleSizes {
 public:
  /// `dtype`: to which floating tensors are converted, where it is smaller than their own.
  ModuleSizes(const Network& network, const std::optional<std::string>& dtype);

  /// Of a module or a tensor; 0 for one that has none of its own.
  Index operator[](const std::string& path) const;
  Index total() const { return (*this)[""]; }
  /// The paths that have bytes, parents first, in the order of the tensors; parameters before buffers.
  const std::vector<std::string>& paths() const { return paths_; }
  /// Of the modules without others in them that have bytes.
  Index mean_of_leaves() const;

 private:
  void add(const std::string& tensor, Index bytes);

  std::map<std::string, Index> bytes_;
  std::vector<std::string> paths_;
};

}  // namespace shard::dispatch
