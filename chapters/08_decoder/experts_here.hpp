#pragma once

/// This device's experts, at work on the tokens that came to them from all devices.

#include <span>

#include "blocks.hpp"
#include "experts_route.hpp"

namespace shard::decoders {

using OwnedExpert = FeedForward<Owned, Owned>;
using OwnedExpertGradients = FeedForwardGradients<Owned, Owned, Owned>;

/// What they keep, each for its own t tokens.
struct ExpertsKept {
  std::vector<Owned> n;                    // (t, D)
  std::vector<FeedForwardKept<Owned>> of;  // (t, F)
};

/// Row i of the result (m, D) is the answer to row i of the tokens n (m, D).
inline Tensor answers(Communicator& group, Tensor n, const Route& route, std::span<const OwnedExpert> mine,
                      const Arithmetic& how, ExpertsKept& kept) {
  Tensor y = Tensor::uninitialized(n.shape());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    kept.n.push_back(Owned::mine(group, gather_rows(n, route.rows[i])));                 // (t, D)
    const Owned answer = feed_forward(kept.n[i], mine[i], how, kept.of.emplace_back());  // (t, D)  O·O·O = O
    scatter_rows(answer.local(), route.rows[i], y);
  }
  return y;
}
/// The gradient of n (m, D). Gives each expert's gradient, without that of n.
inline Tensor answers_backward(Communicator& group, Tensor dy, const Route& route,
                               std::span<const OwnedExpert> mine, const Arithmetic& how, ExpertsKept& kept,
                               std::vector<OwnedExpertGradients>& dw) {
  Tensor dn = Tensor::uninitialized(dy.shape());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const Owned d = Owned::mine(group, gather_rows(dy, route.rows[i]));  // (t, D)
    dw.push_back(feed_forward_backward(d, kept.n[i], mine[i], how, std::move(kept.of[i])));
    kept.n[i] = Owned();
    scatter_rows(std::exchange(dw.back().n, Owned()).local(), route.rows[i], dn);
  }
  return dn;
}

}  // namespace shard::decoders
