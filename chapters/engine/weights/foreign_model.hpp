#pragma once

/// A network that another library has written, and the names under which it stores our parameters.

#include <map>
#include <memory>
#include <string>

#include "engine/basics/ranges.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

/// What is read of a network: all that its results depend on; or sizes alone, which shapes, operations and bytes
/// depend on.
enum class Reading { values, sizes };

/// A network of another library: its parameters under that library's names, and its configuration.
struct ForeignModel {
  std::string source;  ///< where it comes from, for messages
  /// Hyper-parameters as text: "relu", "48", "true", "null". A string that is empty or could be another value
  /// stands in quotes, as "48" does where a file has a string. The text of a list is its JSON, that of an object
  /// "object", or "{}" if it is empty. A member of an object has the object's name before its own:
  /// "rope_parameters.rope_theta".
  std::map<std::string, std::string> config;
  std::unique_ptr<Checkpoint> parameters;

  /// The value of a hyper-parameter; `otherwise` if it is missing or null.
  const std::string& hyper_parameter(const std::string& name, const std::string& otherwise) const;
};

/// The name under which one of our parameters is stored. A library that stores (out, in) has its transpose.
struct ForeignName {
  std::string name;
  bool is_transposed = false;
  bool is_vector = false;  ///< our matrix (1, n) is stored as a vector (n)

  /// The shape in which a parameter of this shape is stored.
  Shape stored_shape(const Shape& ours) const {
    if (is_vector) return {ours.at(1)};
    return is_transposed ? Shape{ours.at(1), ours.at(0)} : ours;
  }
};
/// Stored names, by the names of our parameters.
using ForeignNames = std::map<std::string, ForeignName>;

/// A checkpoint under our names and in our shapes. A slice along one axis of a transposed parameter is a
/// slice along the other axis of the stored matrix, and nothing else is read. `source` names the origin in
/// messages. \throws Error file when a parameter is missing, or one to transpose is no matrix
std::unique_ptr<Checkpoint> renamed(std::unique_ptr<Checkpoint> stored, ForeignNames names,
                                    std::string source);

}  // namespace shard
