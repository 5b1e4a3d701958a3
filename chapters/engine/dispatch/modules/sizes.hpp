#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/dispatch/modules/tree.hpp"

namespace shard::dispatch {

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
