#pragma once

/// The likely cause of a difference: one table of rules for `train` and for tests.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/split.hpp"
#include "engine/host_tensor.hpp"

namespace shard {

/// What is known of a tensor that differs from the expected one: this device's part of both, and what they
/// could be mistaken for. What is not known stays empty, and its rules are left out.
struct Evidence {
  HostTensor given;
  HostTensor expected;
  int num_devices = 1;
  int place = 0;                          ///< of this device in its group
  std::vector<HostTensor> slices = {};    ///< of the expected whole, by device, where it is divided
  std::optional<HostTensor> before = {};  ///< what was expected one step before
  std::vector<HostTensor> addends = {};   ///< by device; what was expected is their sum
  /// Whether the same step was right with dL/dx wanted; in this one it was not wanted.
  bool was_right_with_input_grad = false;
};

/// The causes that the rules know, in the order in which they are tried: the first one that fits counts.
enum class Cause {
  left_out,         ///< there is no result of this name, or none is expected: no rule
  only_if_wanted,   ///< right where dL/dx is wanted
  not_finite,       ///< an element is not finite, and is expected to be
  zero,             ///< every element is 0
  negated,          ///< every element times −1
  averaged,         ///< every element times 1/N
  counted_n_times,  ///< every element times N
  scaled,           ///< every element times another factor
  rounded,          ///< every element as 16 bits have it
  previous_step,    ///< what was expected one step before
  one_addend,       ///< one device's addend of the sum
  addend_missing,   ///< the sum without one device's addend
  addend_twice,     ///< the sum with one device's addend twice
  transposed,       ///< of a square matrix, or under the transposed shape
  other_slice,      ///< another device's slice
  shifted,          ///< rows or columns begin at another index
  mask_forgotten,  ///< differs only where 0 is expected; or most columns that are to be 0 are not, and rows are
  unknown
};

/// What the first rule that fits says.
struct Diagnosis {
  Cause cause = Cause::unknown;
  /// "1/4 of it in every element: a mean where a sum is meant?"; "no known cause" for Cause::unknown.
  std::string text;
};

/// Tries the rules in order. `given` differs from `expected`. The same evidence gives the same answer.
///
/// Values are compared bit for bit (−0 being 0), as those of exact problems are. A rule whose tensors are all
/// zeros fits nothing, as it would fit by chance.
Diagnosis diagnose(const Evidence& evidence);

}  // namespace shard
