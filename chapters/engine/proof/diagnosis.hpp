#pragma once

/// The likely cause of a difference: one table of rules for `train` and for tests.

#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/device/split.hpp"

namespace shard {

/// The causes that are known (causes.inc has the sentence of each), and Cause::unknown.
enum class Cause {
#define CAUSE(name, sentence) name,
#include "suite/shardbook_check/causes.inc"
#undef CAUSE
};

/// A cause as a sentence: "1/4 of it in every element: a mean where a sum is meant?", or "no known cause".
struct Diagnosis {
  Cause cause;
  std::string text;

  /// The cause's sentence, with `words` in its braces.
  explicit Diagnosis(Cause cause = Cause::unknown, const std::vector<std::string>& words = {});
};

/// A tensor as a certain wrong computation gives it.
struct OtherVersion {
  Diagnosis says;
  HostTensor values;
};

/// What some rows of the batch add to a sum over all rows.
struct PartOfSum {
  std::string of;  ///< whose rows: device "2", or the "last" micro-batch
  Index rows = 0;  ///< how many
  HostTensor values;
};

/// The facts about a tensor that differs from the expected one: this device's part of both, and possible
/// explanations. Rules that need a fact that is unknown (empty) do not apply.
struct Evidence {
  HostTensor given;
  HostTensor expected;
  int num_devices = 1;
  int place = 0;  ///< of this device in its group
  /// Of the expected whole, if it is divided: for each device, as many indices as are given, from the first one of
  /// that device's slice on. At the end of the whole there may be fewer.
  std::vector<HostTensor> slices = {};
  std::vector<PartOfSum> addends = {};  ///< by device, if devices divide the rows; their sum was expected
  std::vector<PartOfSum> pieces = {};   ///< by micro-batch, if there are several; their sum was expected
  bool is_log_loss = false;  ///< whether it has the losses of tokens, as logarithms to base 2 on the grid
  std::vector<OtherVersion> others = {};  ///< the likeliest first
  /// Whether the same step gave right results when dL/dx was wanted. In this step it was not.
  bool was_right_with_input_grad = false;
  /// The cause, if all results together have shown it.
  Diagnosis known = Diagnosis();
};

/// Tries the rules in order and returns the first that applies. `given` differs from `expected`. The same
/// evidence gives the same result.
///
/// Values are compared bit for bit (−0 equals 0), as exact problems are. A rule whose tensors are all zeros
/// does not apply, since it would match by chance.
Diagnosis diagnose(const Evidence& evidence);

}  // namespace shard
