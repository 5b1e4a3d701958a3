#pragma once

/// The types of the closed forms: what collectives send, and the costs of a step in a chapter's costs.hpp.
///
/// A closed form is derived by hand from the algorithm, and the ledger measures. Tests compare the two, which
/// must be equal. Elements are float32, 4 bytes each.

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/books/collective_costs.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/device/device.hpp"

namespace shard {

class Workload;

/// Data of a step that its costs depend on: a mixture's costs depend on the experts that its tokens choose.
struct StepData {
  virtual ~StepData() = default;
  /// The number of devices that the rows are divided over.
  virtual int devices() const = 0;
  virtual bool equals(const StepData& other) const = 0;
  /// What is otherwise than in the expected step, in a sentence; empty if nothing is, or it is not known.
  virtual std::string difference_from(const StepData& /*expected*/) const { return ""; }
};

/// The arguments of a closed form.
struct Setting {
  const Workload* workload = nullptr;  ///< the network that is trained
  Index batch = 64;                    ///< rows of the global batch
  bool input_grad = false;             ///< whether dL/dx is computed
  int devices = 1;
  int device = 0;                                  ///< the one whose costs are computed
  std::shared_ptr<const StepData> data = nullptr;  ///< for workloads whose costs depend on it
  Precision precision = Precision::float32;        ///< of products
};

/// What one device sends, computes and holds in a step: forward, loss gradient and backward; then the
/// optimizer; then `after_step()`.
struct Costs {
  std::array<Traffic, num_collectives> sent{};             ///< per collective, forward and backward
  std::array<Traffic, num_collectives> sent_after_step{};  ///< per collective, in `after_step()`
  Index flops = 0;                                         ///< of matrix products
  Index parameter_bytes = 0;                               ///< held by this device between steps
  /// Bytes of the parameters that this device's optimizer updates, if it does not update all of them. Their
  /// gradients are as large, and so is each kind of the optimizer's state.
  std::optional<Index> trained_bytes;
  /// The most bytes held at a time in forward and backward: parameters, gradients, activations, buffers. The
  /// loss gradient has the size of the output. The caller holds the input and the gradients.
  Index peak_bytes = 0;
  /// The most bytes held in `after_step()`, without parameters, gradients and the optimizer's state.
  Index after_step_bytes = 0;

  Traffic& operator[](Collective c) { return sent[static_cast<std::size_t>(c)]; }
  Traffic& after_step(Collective c) { return sent_after_step[static_cast<std::size_t>(c)]; }
  Index trained() const { return trained_bytes.value_or(parameter_bytes); }
  /// The traffic of a whole step.
  Traffic total() const;
  /// The most bytes held in a whole step by an optimizer with `state_per_element` elements of state for each
  /// updated element (2 for Adam). The first step makes the state only at its end. dL/dx is not kept.
  Index step_peak_bytes(Index state_per_element, bool is_first) const;
};

/// The floating-point operations of a product of (m, k) and (k, n).
constexpr Index product_flops(Index m, Index k, Index n) {
  return 2 * m * k * n;
}

/// The moment of a program at which the most memory is held.
class Peak {
 public:
  /// One moment: the sizes, in elements, of all tensors held then.
  void at(std::initializer_list<Index> elements) {
    Index sum = 0;
    for (Index e : elements) sum += e;
    most_ = std::max(most_, sum);
  }
  Index bytes() const { return most_ * bytes_per_element; }

 private:
  Index most_ = 0;
};

}  // namespace shard
