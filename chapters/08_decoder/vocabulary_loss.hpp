#pragma once

/// The loss where the vocabulary is divided (Shoeybi et al. 2019, "Megatron-LM", section 3): each device has
/// its columns of the logits. The devices exchange three numbers a token: the largest logit, the sum of the
/// powers, and the logit of the label. No device ever holds all logits.

#include "engine/device/layer_operations.hpp"
#include "engine/layers/tokens/cross_entropy.hpp"

namespace shard::decoders {

/// z (T, V/N), columns of the vocabulary from `first` on: losses (T, 1), the same on all devices of `group`.
inline Tensor divided_cross_entropy(Tensor z, Index first, const Tokens& tokens, const Arithmetic& how,
                                    TokenSoftmax& kept, Communicator& group) {
  auto over_devices = [&](Tensor mine, ReduceOp op, SourceLine where = SourceLine::current()) {
    return group.all_reduce_async(std::move(mine), op, where).get(where);
  };
  Tensor mine = how.exponents(std::move(z));  // (T, V/N)
  kept.labels = in_slice(tokens.labels, {first, first + mine.extent(1)});
  const Tensor largest = over_devices(row_max(mine), ReduceOp::max);                          // (T)
  const Tensor of_labels = over_devices(logits_of_labels(mine, kept.labels), ReduceOp::sum);  // (T, 1)
  kept.p = powers_of_logits(std::move(mine), largest, how);                                   // (T, V/N)
  const Tensor sums = over_devices(row_sums(kept.p), ReduceOp::sum);                          // (T)
  kept.p = divide_rows(std::move(kept.p), sums);
  return token_losses(largest, sums, of_labels, tokens, how);
}

/// z (T, V/N): losses (T, 1), on every device.
inline Replicated cross_entropy(Sharded<1> z, const Tokens& tokens, const Arithmetic& how,
                                TokenSoftmax& kept) {
  Communicator& group = z.group();
  const Index first = z.offset();
  return Replicated(group, divided_cross_entropy(std::move(z).local(), first, tokens, how, kept, group));
}

/// dz (T, V/N), which lies as z does: its columns are the rows of this table, (V/N, D).
inline Sharded<1> cross_entropy_backward(const Replicated& dloss, const Sharded<0>& table,
                                         const Tokens& tokens, const Arithmetic& how, TokenSoftmax kept) {
  Tensor dz = cross_entropy_backward(dloss.local(), tokens, how, std::move(kept));
  return Sharded<1>(table.group(), std::move(dz), {tokens.rows(), table.global_shape()[0]}, table.offset());
}

/// The same where devices have the whole vocabulary.
template <WholeRows L>
L cross_entropy_backward(const L& dloss, const WeightFor<L>& /*table*/, const Tokens& tokens,
                         const Arithmetic& how, TokenSoftmax kept) {
  return shard::cross_entropy_backward(dloss, tokens, how, std::move(kept));
}

}  // namespace shard::decoders
