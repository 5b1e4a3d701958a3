#pragma once

/// The router chooses the experts of each token, and the factors of their answers, the gates. It computes
/// each row by itself, so one device and many get the same result. Fedus et al. 2021, "Switch Transformers",
/// section 2.1 (top-1) and 2.2 (auxiliary loss); Lepikhin et al. 2020, "GShard", section 2.2 (top-2); after
/// Shazeer et al. 2017, "Outrageously Large Neural Networks".

#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/split.hpp"
#include "engine/workloads/mixture/model.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard::expert {

/// What the router computes for b tokens.
struct Choices {
  Tensor probabilities;        // (b, E)   p = softmax(logits)
  Tensor gates;                // (b, k)   what each chosen expert's answer is multiplied by
  std::vector<Index> experts;  // (b, k)   the chosen ones, most likely first
};

/// ## Choosing
/// With one expert for each token, the gate is the expert's probability, so that the router gets a gradient.
/// With several, the gates are the chosen probabilities divided by their sum. The denominator of the softmax
/// cancels, so the gates are the softmax of the chosen logits alone. The largest logits have the largest
/// probabilities, so the choice can be made by logits.
inline Choices choose(Tensor logits, const RoutingRule& rule) {  // (b, E)
  std::vector<float> preference;
  for (Index e = 0; e < logits.extent(1); ++e)
    preference.push_back(static_cast<float>(-rule.skew * static_cast<double>(e)));
  logits = add_to_rows(std::move(logits), preference);
  Choices c;
  c.experts = top_k(logits, rule.top_k);
  if (rule.top_k > 1) c.gates = softmax(take_columns(logits, c.experts, rule.top_k));  // (b, k)
  c.probabilities = softmax(std::move(logits));                                        // (b, E)
  if (rule.top_k == 1) c.gates = take_columns(c.probabilities, c.experts, 1);
  return c;
}

/// ## The loss that balances the load
/// w E Σ f_e P_e, where f_e is the part of all choices that expert e got, and P_e its mean probability over
/// the batch. Choices have no gradient, so f_e is a constant, and the derivative by each token's p_e is
/// w E f_e / B.
inline std::vector<float> balance_gradient(const RoutingRule& rule, const RoutedCounts& counts, Index batch) {
  std::vector<float> of_expert;
  for (Index e = 0; e < counts.num_experts; ++e) {
    double share = static_cast<double>(counts.chosen_for(e)) / static_cast<double>(counts.top_k * batch);
    of_expert.push_back(static_cast<float>(rule.aux_weight * static_cast<double>(counts.num_experts) * share /
                                           static_cast<double>(batch)));
  }
  return of_expert;
}

/// ## Choosing, backward
/// Computes dL/dlogits, (b, E), from dL/dgates, (b, k), and from the derivative of the balancing loss by each
/// token's probabilities, (E).
inline Tensor choose_backward(Tensor dgates, const Choices& c, const std::vector<float>& balance) {
  const Index num_experts = c.probabilities.extent(1);
  if (c.gates.extent(1) == 1) {
    Tensor dp = add_to_rows(put_columns(dgates, c.experts, num_experts), balance);
    return softmax_backward(std::move(dp), c.probabilities);
  }
  Tensor dlogits = put_columns(softmax_backward(std::move(dgates), c.gates), c.experts, num_experts);
  Tensor dp = add_to_rows(Tensor(c.probabilities.shape()), balance);
  return add(std::move(dlogits), softmax_backward(std::move(dp), c.probabilities));
}

}  // namespace shard::expert
