#pragma once

/// Where tokens go that chose experts of several devices, and this device's experts at work on the tokens that
/// came to them.

#include <numeric>
#include <span>

#include "blocks.hpp"

namespace shard::decoders {

/// The token of each choice, by expert: the rows that leave.
inline std::vector<Index> leaving_rows(const ExpertChoice& choice) {
  std::vector<Index> tokens = choice.in_order();
  for (Index& row : tokens) row /= choice.top_k();
  return tokens;
}

/// How many rows a device sends and receives, and which of the received rows are for which of its experts.
struct Route {
  std::vector<Index> to;                 ///< (N)   rows that go to each device
  std::vector<Index> from;               ///< (N)   rows that come from each
  std::vector<std::vector<Index>> rows;  ///< of each of its experts, places among the rows that arrive
  Index arriving = 0;                    ///< m, the sum of `from`
};

/// `leaving` (E): how many of this device's tokens chose each expert. `arriving` (N, E/N): how many of each
/// device's tokens chose each of this device's experts. Rows leave in the order of their experts, and so of
/// the devices that own these. They arrive in the order of the sending devices; rows from one device are in
/// the order of the experts.
inline Route route_of(const std::vector<Index>& leaving, const std::vector<Index>& arriving, int devices,
                      int device) {
  const auto experts = static_cast<Index>(leaving.size());
  Route route;
  route.rows.resize(static_cast<std::size_t>(part(experts, devices, device).size()));
  auto count = arriving.begin();
  for (int d = 0; d < devices; ++d) {
    const Range theirs = part(experts, devices, d);
    route.to.push_back(
        std::accumulate(leaving.begin() + theirs.begin, leaving.begin() + theirs.end, Index{0}));
    const Index before = route.arriving;
    for (std::vector<Index>& of_expert : route.rows)
      for (Index i = *count++; i > 0; --i) of_expert.push_back(route.arriving++);
    route.from.push_back(route.arriving - before);
  }
  return route;
}

using OwnedExpert = FeedForward<Owned, Owned>;
using OwnedExpertGradients = FeedForwardGradients<Owned, Owned, Owned>;

/// What they keep, each for its own t tokens, which lie as X. The expert's columns lie as C.
template <Layout X, Layout C>
struct ExpertsKept {
  std::vector<X> n;                                  // (t, D)
  std::vector<FeedForwardKept<ProductOf<X, C>>> of;  // (t, F)
};

/// Row i of the result (m, D) is the answer to row i of the tokens n (m, D), or its addend where the experts'
/// hidden units are divided. `lay` says how an expert's tokens lie.
template <Layout X, Layout C, Layout R, class Lay>
Tensor answers(const Lay& lay, Tensor n, const Route& route, std::span<const FeedForward<C, R>> mine,
               const Arithmetic& how, ExpertsKept<X, C>& kept) {
  Tensor y = Tensor::uninitialized(n.shape());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    kept.n.push_back(lay(gather_rows(n, route.rows[i])));                               // (t, D)
    const auto answer = feed_forward(kept.n[i], mine[i], how, kept.of.emplace_back());  // (t, D)
    scatter_rows(detail::Access::tensor(answer), route.rows[i], y);
  }
  return y;
}
/// The gradient of n (m, D), or its addend. Gives each expert's gradient, without that of n.
template <Layout X, Layout C, Layout R, class Lay>
Tensor answers_backward(const Lay& lay, Tensor dy, const Route& route,
                        std::span<const FeedForward<C, R>> mine, const Arithmetic& how,
                        ExpertsKept<X, C>& kept, std::vector<FeedForwardGradients<X, C, R>>& dw) {
  Tensor dn = Tensor::uninitialized(dy.shape());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const X d = lay(gather_rows(dy, route.rows[i]));  // (t, D)
    dw.push_back(feed_forward_backward(d, kept.n[i], mine[i], how, std::move(kept.of[i])));
    kept.n[i] = X();
    scatter_rows(detail::Access::take(std::exchange(dw.back().n, {})), route.rows[i], dn);
  }
  return dn;
}

/// A device tells each other one how many of its tokens chose each expert there, so that it knows what will
/// arrive: (N, E/N). `leaving` (E): how many of its own tokens chose each expert.
inline std::vector<Index> arriving(Communicator& group, const std::vector<Index>& leaving) {
  const auto num_experts = static_cast<Index>(leaving.size());
  std::vector<Index> experts;  // of each device
  for (int d = 0; d < group.num_devices(); ++d)
    experts.push_back(part(num_experts, group.num_devices(), d).size());
  const std::vector<float> mine(leaving.begin(), leaving.end());
  const std::vector<float> all =
      group.all_to_all_async(Tensor::from_host({num_experts}, mine), experts, 0).get().to_host();
  return {all.begin(), all.end()};
}
inline void require_announced(const Route& route, const Tensor& rows) {
  if (rows.extent(0) == route.arriving) return;
  refuse(Code::internal, "experts", to_string({route.arriving, rows.extent(1)}) + ", as announced",
         to_string(rows.shape()));
}
/// The same on all devices of a group, so that none waits for one that has given up. `from`: how many rows each
/// device has announced.
inline void require_announced_everywhere(Communicator& group, const std::vector<Index>& from,
                                         const Tensor& rows) {
  const Index announced = std::accumulate(from.begin(), from.end(), Index{0});
  const std::vector<Index> more = group.exchange("rows that came", rows.extent(0) - announced);
  if (std::ranges::count(more, 0) < std::ssize(more))
    refuse(Code::internal, "experts", to_string({announced, rows.extent(1)}) + ", as announced",
           to_string(rows.shape()));
}

/// Puts the gradients of a block's experts: of this device's, and, by shape and owner, of those of others.
inline void put_experts(const DecoderModel& m, Index b, const std::vector<OwnedExpert>& all,
                        std::vector<OwnedExpertGradients> mine, Gradients& gradients) {
  auto of_other = [](const Owned& p) { return Owned(p.group(), Tensor(), p.global_shape(), p.owner()); };
  auto next = mine.begin();
  for (std::size_t e = 0; e < all.size(); ++e) {
    const OwnedExpert& w = all[e];
    if (w.gate.is_mine())
      put_expert(m, b, e, std::move(*next++), gradients);
    else
      put_expert(m, b, e, OwnedExpert{of_other(w.gate), of_other(w.up), of_other(w.down)}, gradients);
  }
}

}  // namespace shard::decoders
