#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/layouts/placed.hpp"
#include "engine/proof/diagnosis.hpp"

namespace shard {

/// The difference between a result and the expected one, element by element.
struct Comparison {
  /// The largest distance in ulp: the number of float32 steps. 0: equal bit for bit (−0 equals 0).
  std::int64_t max_ulp = 0;
  /// max |a − b| / max |b|; 0 for equal and for empty tensors, infinite if that is no number.
  double relative = 0;
  /// One line: tensor, device, index of the first difference, expected, given, and the likely cause
  /// (diagnosis.hpp). Empty without a difference.
  std::string first_difference;
  Cause cause = Cause::unknown;

  bool is_equal() const { return max_ulp == 0; }
};

/// Whole result tensors, by name.
using WholeResults = std::map<std::string, HostTensor>;

/// The results of a computation other than the right one.
struct OtherResults {
  Diagnosis says;
  WholeResults results;
};

/// The results of a step in which only some rows of the batch count.
struct RowsAlone {
  std::string of;  ///< PartOfSum::of
  Index rows;
  const WholeResults* results;
};

/// Results that may explain a wrong one. They are computed only when something differs.
struct Background {
  std::function<std::vector<RowsAlone>(const std::string& name)> addends = {};  ///< Evidence::addends
  std::function<std::vector<RowsAlone>(const std::string& name)> pieces = {};   ///< Evidence::pieces
  std::function<std::vector<OtherResults>()> others = {};  ///< the results of some wrong computations
  bool has_log_losses = false;                             ///< whether the output is Evidence::is_log_loss
  bool was_right_with_input_grad = false;                  ///< Evidence::was_right_with_input_grad
};

/// Rows of the output that the loss received on this device.
struct OutputRows {
  Index first_row;
  HostTensor rows;
};

/// Compares this device's part of `actual` with the same part of the expected whole. `known`: Evidence::known.
Comparison compare(const std::string& name, const Placed& actual, const HostTensor& expected,
                   const Diagnosis& known = Diagnosis());
/// Compares two arrays of equal shape. `offset` is added to the reported index along `axis`.
Comparison compare(const std::string& name, const HostTensor& actual, const HostTensor& expected,
                   int num_devices = 1, int axis = 0, Index offset = 0);

/// Compares this device's part of all results with the expected ones: rows of "output", and each gradient by
/// name. Each device returns each gradient: a missing or an unexpected one is a difference, too. Of the wrong
/// computations, the one that explains most of this device's results counts.
std::vector<Comparison> compare_all(const Communicator& group, const std::vector<OutputRows>& output,
                                    const std::map<std::string, Placed>& gradients,
                                    const WholeResults& expected, const Background& background = {});

/// The distance in ulp; the largest integer when one of the two is a NaN, or both: a NaN equals nothing.
std::int64_t ulp_distance(float a, float b);
/// Whether a distance, or the largest of several, is that integer: a NaN, or nothing to compare with.
bool is_far(std::int64_t distance);

}  // namespace shard
