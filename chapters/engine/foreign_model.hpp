#pragma once

/// A network that another library has written, and where it has the parameters of one of ours.

#include <map>
#include <memory>
#include <string>

#include "engine/checkpoint.hpp"
#include "engine/host_tensor.hpp"

namespace shard {

/// A network of another library's: its parameters under that library's names, and what is said of it.
struct ForeignModel {
  std::string source;  ///< where it comes from, for messages
  /// Hyper-parameters as text: "relu", "48", "true", "null". Lists and objects are named by their kind; what
  /// is in an object has the object's name before its own: "rope_parameters.rope_theta".
  std::map<std::string, std::string> config;
  std::unique_ptr<Checkpoint> parameters;

  /// What a hyper-parameter is; `otherwise` where nothing is said of it, or null.
  const std::string& hyper_parameter(const std::string& name, const std::string& otherwise) const;
};

/// Where a parameter of ours lies. A library that stores (out, in) has its transpose.
struct ForeignName {
  std::string name;
  bool is_transposed = false;
};
/// By our names.
using ForeignNames = std::map<std::string, ForeignName>;

/// These parameters of a checkpoint under our names and in our shapes. A slice along an axis of a
/// transposed one is a slice along the other axis of what is stored, and nothing else is read. `source` is
/// their name in messages. \throws Error file when one of them is missing, or one to be transposed is no matrix
std::unique_ptr<Checkpoint> renamed(std::unique_ptr<Checkpoint> stored, ForeignNames names,
                                    std::string source);

/// A matrix and its transpose.
HostTensor transposed(const HostTensor& matrix);

}  // namespace shard
