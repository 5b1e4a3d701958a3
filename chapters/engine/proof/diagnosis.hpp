#pragma once

/// The likely cause of a difference: one table of rules for `train` and for tests.

#include <string>
#include <vector>

#include "engine/device/split.hpp"
#include "engine/host_tensor.hpp"

namespace shard {

/// The causes that are known (causes.inc has the sentence of each), and Cause::unknown.
enum class Cause {
#define CAUSE(name, sentence) name,
#include "engine/proof/causes.inc"
#undef CAUSE
};

/// What is said of a difference: "1/4 of it in every element: a mean where a sum is meant?"; "no known
/// cause".
struct Diagnosis {
  Cause cause;
  std::string text;

  /// The cause's sentence, with these words in its braces.
  explicit Diagnosis(Cause cause = Cause::unknown, const std::vector<std::string>& words = {});
};

/// A tensor as something else that was computed would have it.
struct OtherVersion {
  Diagnosis says;
  HostTensor values;
};

/// What is known of a tensor that differs from the expected one: this device's part of both, and what they
/// could be mistaken for. What is not known stays empty, and its rules are left out.
struct Evidence {
  HostTensor given;
  HostTensor expected;
  int num_devices = 1;
  int place = 0;                          ///< of this device in its group
  std::vector<HostTensor> slices = {};    ///< of the expected whole, by device, where it is divided
  std::vector<HostTensor> addends = {};   ///< by device; what was expected is their sum
  std::vector<OtherVersion> others = {};  ///< the likeliest first
  /// Whether the same step was right with dL/dx wanted; in this one it was not wanted.
  bool was_right_with_input_grad = false;
};

/// Tries the rules in order; the first one that fits counts. `given` differs from `expected`. The same
/// evidence gives the same answer.
///
/// Values are compared bit for bit (−0 being 0), as those of exact problems are. A rule whose tensors are all
/// zeros fits nothing, as it would fit by chance.
Diagnosis diagnose(const Evidence& evidence);

}  // namespace shard
