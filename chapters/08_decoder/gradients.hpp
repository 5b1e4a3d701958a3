#pragma once

/// Functions put(what, gradient), which take the gradient of a weight that a block has computed. `what` is a part
/// of a block, or a name.

#include "blocks.hpp"

namespace shard::decoders {

/// The gradient of a weight over the rows of all devices. Where rows are divided, each device has an addend
/// of it.
/// @{
template <Layout L>
L over_all_rows(ShardedEngine&, L dw) {
  return dw;
}
inline Replicated over_all_rows(ShardedEngine& engine, Partial dw) {
  return engine.all_reduce(std::move(dw));
}
/// @}

/// \name Ways to put gradients
/// @{
/// Into `gradients`, by the names in block b. Where rows are divided, addends are summed over the devices
/// first.
inline auto by_name(ShardedEngine& engine, const DecoderModel& m, Gradients& gradients, Index b = 0) {
  return [&, b](const auto& what, auto gradient) {
    std::string name;
    if constexpr (requires { what.name(m, b); })
      name = what.name(m, b);
    else
      name = what;
    gradients.put(name, over_all_rows(engine, std::move(gradient)));
  };
}
/// Added to the gradients g of a block.
template <class AnyGradients>
auto added_to(AnyGradients& g, const DecoderModel& m) {
  g.experts.resize(static_cast<std::size_t>(std::max<Index>(m.experts, 1)));
  return [&g](const auto& part, auto gradient) { accumulate(*part.of(g), std::move(gradient)); };
}
/// @}
template <class D, class Put>
void put_expert(std::size_t e, D d, const Put& put) {
  put(of_block::gate(e), std::move(d.gate));  // (D, F)
  put(of_block::up(e), std::move(d.up));      // (D, F)
  put(of_block::down(e), std::move(d.down));  // (F, D)
}
/// The gradients of the embedding and the head. A table that is both has the sum of the two.
template <class Model, Layout E, class Put>
void put_tables(const Model& m, E embedding, E head, const Put& put) {
  if (m.is_tied)
    accumulate(embedding, std::move(head));
  else
    put(head_name(), std::move(head));
  put(embedding_name(), std::move(embedding));
}
/// Puts the gradient of a norm's weights, (D), and returns that of its rows.
template <class What, WholeRows L, class Put>
L norm_backward(const What& what, L dy, const WeightFor<L>& w, const Arithmetic& how, const Normed& kept,
                const Put& put) {
  SumOverRows<L> dw;
  L dx = rms_norm_backward(std::move(dy), w, how, kept, dw);
  put(what, std::move(dw));
  return dx;
}

}  // namespace shard::decoders
