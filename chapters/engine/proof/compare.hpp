#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/host_tensor.hpp"
#include "engine/placed.hpp"
#include "engine/proof/diagnosis.hpp"

namespace shard {

/// The difference between a result and the expected one, element by element.
struct Comparison {
  /// Largest distance in units in the last place: how many float32 lie between. 0: bit for bit, −0 being 0.
  std::int64_t max_ulp = 0;
  /// max |a − b| / max |b|; 0 for empty tensors.
  double relative = 0;
  /// One line: tensor, device, index of the first difference, expected, given, and the likely cause
  /// (diagnosis.hpp). Empty when there is no difference.
  std::string first_difference;
  Cause cause = Cause::unknown;

  bool is_equal() const { return max_ulp == 0; }
};

/// Whole results, by name.
using WholeResults = std::map<std::string, HostTensor>;

/// Whole results that come of something else than what is expected.
struct OtherResults {
  Diagnosis says;
  WholeResults results;
};

/// What a wrong result may be mistaken for. It is made only when something differs.
struct Background {
  std::function<std::vector<WholeResults>()> addends = {};  ///< of which the results are sums, by device
  std::function<std::vector<OtherResults>()> others = {};   ///< what else may have been computed
  bool was_right_with_input_grad = false;                   ///< Evidence::was_right_with_input_grad
};

/// Rows of the output that the loss saw on this device.
struct OutputRows {
  Index first_row;
  HostTensor rows;
};

/// Compares this device's part of `actual` with the same part of the expected whole.
Comparison compare(const std::string& name, const Placed& actual, const HostTensor& expected);
/// Compares two arrays of one shape. `offset` is added to the reported index along `axis`.
Comparison compare(const std::string& name, const HostTensor& actual, const HostTensor& expected,
                   int num_devices = 1, int axis = 0, Index offset = 0);

/// Compares this device's part of all results with the same part of what is expected: rows of "output", and
/// by name each gradient. Each device returns each gradient: one that is left out, or that nobody expects, is
/// a difference, too. Of what else may have been computed, that counts which explains most of this device's
/// results.
std::vector<Comparison> compare_all(const Communicator& group, const std::vector<OutputRows>& output,
                                    const std::map<std::string, Placed>& gradients,
                                    const WholeResults& expected, const Background& background = {});

/// Distance in units in the last place; the largest number when one is a NaN and the other is not.
std::int64_t ulp_distance(float a, float b);
/// Whether such a distance, or the largest of several, is that number: a NaN, or nothing to compare with.
bool is_far(std::int64_t distance);

}  // namespace shard
