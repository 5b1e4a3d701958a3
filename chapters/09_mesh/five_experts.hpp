#pragma once

/// The feed-forward of a block on five axes, or its experts. Hidden units are divided over tensor. Experts
/// are divided over expert: a token is sent along this axis, and along no other one. (Part of five.hpp.)

#include "five_axes.hpp"

namespace shard::meshes {

/// This device's experts of a block.
template <class K>
std::span<const FeedForward<ExpertWeight<S<1>>, ExpertWeight<S<0>>>> experts_here(
    const FiveHere& here, const FiveBlock<Weight, ExpertWeight, K>& w) {
  const Communicator& along = here.along<experts>();
  const Range mine = part(here.m.experts, along.num_devices(), along.device_id());
  return std::span(w.experts).subspan(static_cast<std::size_t>(mine.begin),
                                      static_cast<std::size_t>(mine.size()));
}
/// Tokens that came to one of them.
inline auto routed_here(const FiveHere& here) {
  return [&here](Tensor rows) {
    Shape shape = rows.shape();
    return Routed<R>::uneven(here.mesh(), std::move(rows), std::move(shape));
  };
}
/// Sends rows along expert, so many to each device. As many come from each as it has announced. If that is
/// not so on one device, all devices along expert refuse it: none waits for a device that has given up.
inline Tensor along_expert(const FiveHere& here, Tensor rows, const std::vector<Index>& to,
                           const std::vector<Index>& from, SourceLine where = SourceLine::current()) {
  Communicator& along = here.along<experts>();
  Tensor arrived = along.all_to_all_async(std::move(rows), to, 0, where).get(where);
  const Index announced = std::accumulate(from.begin(), from.end(), Index{0});
  const std::vector<Index> more = along.exchange("rows that came", arrived.extent(0) - announced);
  if (std::ranges::count(more, 0) < std::ssize(more))
    refuse(Code::internal, "experts", to_string({announced, arrived.extent(1)}) + ", as announced",
           to_string(arrived.shape()));
  return arrived;
}

/// ## Forward
/// The router's choice, tokens to their experts, and answers back. The devices along tensor have the same
/// tokens, so they choose the same, and each sends to its own parts of the experts. An answer is an addend.
template <class K>
Activation<P> ask_experts(const FiveHere& here, const FiveBlock<Weight, ExpertWeight, K>& w,
                          FiveBlockKept<K>& k) {
  const DecoderModel& m = here.m;
  const Communicator& along = here.along<experts>();
  k.choice = choose_experts(matmul(k.f, w.router), m.top_k, m.how);  // of (T, E)
  const std::vector<Index> leaving = k.choice.counts();
  k.route =
      route_of(leaving, arriving(here.along<experts>(), leaving), along.num_devices(), along.device_id());
  Tensor n = gather_rows(k.f.local(), leaving_rows(k.choice));     // (T · k, D)   by expert, so by device
  n = along_expert(here, std::move(n), k.route.to, k.route.from);  // (m, D)       tokens for my experts
  Tensor y = answers(routed_here(here), std::move(n), k.route, experts_here(here, w), m.how, k.experts);
  k.answers = along_expert(here, std::move(y), k.route.from, k.route.to);  // (T · k, D)   back, as they left
  return Activation<P>::uneven(here.mesh(), combine_rows(k.answers, k.choice.slots(), k.choice.gates),
                               k.f.global_shape());
}
/// x (T, D): an addend of (T, D).
template <class K>
Activation<P> think(const FiveHere& here, const FiveBlock<Weight, ExpertWeight, K>& w, const Activation<R>& x,
                    FiveBlockKept<K>& k) {
  const DecoderModel& m = here.m;
  k.f = rms_norm(x, w.feed_forward_norm, m.epsilon, m.how, k.feed_forward_norm);  // (T, D)
  if (m.is_mixture()) return ask_experts(here, w, k);
  return feed_forward(k.f, w.feed_forward, m.how, k.feed_forward);  // (T, D)   R·S1·S0 = P
}

/// Adds the gradients of an expert's weights, or of the feed-forward's, to their sums.
template <class Sums, class Gradients>
void add_to_sums(Sums& sums, Gradients addends) {
  accumulate(sums.gate, std::move(addends.gate));  // (D, f)
  accumulate(sums.up, std::move(addends.up));      // (D, f)
  accumulate(sums.down, std::move(addends.down));  // (f, D)
}

/// ## Backward
/// Gradients of answers go to the experts, and gradients of tokens come back. An expert's gradient is an
/// addend over data and context, where its copies are. Over expert it is whole: all tokens of this copy
/// came here.
template <class K>
Activation<R> ask_experts_backward(const FiveHere& here, const FiveBlock<Weight, ExpertWeight, K>& w,
                                   const Activation<R>& d, FiveBlockKept<K>& k,
                                   FiveBlock<Addend, ExpertAddend, K>& g) {
  const DecoderModel& m = here.m;
  const std::vector<Index> slots = k.choice.slots();
  Activation<P> dgates = Activation<P>::uneven(here.mesh(), dot_rows(d.local(), k.answers, slots, m.top_k),
                                               {d.global_shape()[0], m.top_k});  // (T, k)
  k.answers = Tensor();
  Tensor dy = gather_rows(d.local(), leaving_rows(k.choice));  // (T · k, D)
  dy = m.how.rounded(scale_rows(std::move(dy), k.choice.gates, k.choice.in_order()));
  dy = along_expert(here, std::move(dy), k.route.to, k.route.from);  // (m, D)   of my experts' answers
  std::vector<FeedForwardGradients<Routed<R>, ExpertWeight<S<1>>, ExpertWeight<S<0>>>> dw;
  Tensor dn = answers_backward(routed_here(here), std::move(dy), k.route, experts_here(here, w), m.how,
                               k.experts, dw);  // (m, D)
  const Communicator& along = here.along<experts>();
  Index e = part(m.experts, along.num_devices(), along.device_id()).begin;
  for (auto& of_expert : dw) add_to_sums(g.experts[static_cast<std::size_t>(e++)], std::move(of_expert));
  dn = along_expert(here, std::move(dn), k.route.from, k.route.to);  // (T · k, D)   of my tokens
  Activation<R> df = here.over_tensor(
      Activation<P>::uneven(here.mesh(), combine_rows(dn, slots, m.top_k), k.f.global_shape()));  // (T, D)
  dn = Tensor();
  const Activation<R> dlogits =
      choose_experts_backward(here.over_tensor(std::move(dgates)), k.choice, m.how);  // (T, E)
  accumulate(g.router, matmul(transposed(k.f), dlogits));  // (D, E)   (P, O, P, P, R)
  return std::move(df) + matmul(dlogits, transposed(w.router));
}
template <class K>
Activation<R> think_backward(const FiveHere& here, const FiveBlock<Weight, ExpertWeight, K>& w,
                             const Activation<R>& d, FiveBlockKept<K>& k,
                             FiveBlock<Addend, ExpertAddend, K>& g) {
  const DecoderModel& m = here.m;
  Activation<R> dn;  // (T, D)
  if (m.is_mixture()) {
    dn = ask_experts_backward(here, w, d, k, g);
  } else {
    auto dy = feed_forward_backward(d, k.f, w.feed_forward, m.how, std::move(k.feed_forward));
    dn = here.over_tensor(std::move(dy.n));  // P → R
    add_to_sums(g.feed_forward, std::move(dy));
  }
  Addend<R> dnorm;  // (D)
  dn = rms_norm_backward(std::move(dn), w.feed_forward_norm, m.how, k.feed_forward_norm, dnorm);
  accumulate(g.feed_forward_norm, std::move(dnorm));
  return dn;
}

}  // namespace shard::meshes
