#pragma once

/// Ring attention (Liu et al. 2023, "Ring Attention with Blockwise Transformers"). Each device has the
/// queries, keys and values of its tokens: a piece. The devices form a ring. In each step, every device
/// attends to the piece of keys and values that it has, and passes it on to its right neighbour. Pieces are
/// passed on N − 1 times, so each device sees all of them. They are added to an online softmax in any order,
/// so no device ever holds all keys.

#include "engine/layers/attention.hpp"
#include "sequence_cut.hpp"

namespace shard::decoders {

/// The positions of each device's keys. Every device knows them by a rule.
struct KeysOnRing {
  std::vector<std::vector<Index>> at = {};  // of each device

  const std::vector<Index>& of(int device) const { return at[static_cast<std::size_t>(device)]; }
  /// The keys of earlier passes, and behind them those of a pass whose tokens are cut so.
  KeysOnRing with(const SequenceCut& cut) && {
    at.resize(cut.runs.size());
    for (int d = 0; d < cut.devices(); ++d)
      std::ranges::copy(cut.positions(d), std::back_inserter(at[static_cast<std::size_t>(d)]));
    return std::move(*this);
  }
};

/// Keys and values of one device's tokens, or their gradients: (B s, G d) each.
struct RingPiece {
  Tensor k, v;
};

/// A piece on its way to the right neighbour, and another one that arrives from the left.
struct RingStep {
  Future<> k_sent, v_sent;
  Future<Tensor> k, v;

  RingPiece arrived() {
    k_sent.wait(), v_sent.wait();
    return {k.get(), v.get()};
  }
};

/// The devices of a group as a ring, and whose piece is where.
class Ring {
 public:
  Ring(Communicator& group, const KeysOnRing& keys, const AttentionHeads& heads)
      : group_(group), keys_(keys), heads_(heads) {}

  int steps() const { return group_.num_devices(); }
  /// The device whose piece is here in a step. In step 0, and again in step N, it is mine.
  int source(int step) const { return (group_.device_id() - step + steps()) % steps(); }
  /// The positions of the keys that are here in a step.
  const std::vector<Index>& at(int step) const { return keys_.of(source(step)); }
  /// Passes a piece on, and takes the one that is to be here in this step. Neither is waited for.
  RingStep pass_on(RingPiece piece, int step) const {
    const int right = (group_.device_id() + 1) % steps(), left = source(1);
    const Shape shape = {heads_.sequences * static_cast<Index>(at(step).size()), heads_.key_width()};
    return {group_.post_send(right, std::move(piece.k)), group_.post_send(right, std::move(piece.v)),
            group_.post_receive(left, shape), group_.post_receive(left, shape)};
  }

 private:
  Communicator& group_;
  const KeysOnRing& keys_;
  const AttentionHeads& heads_;
};

/// ## Forward
/// q (t, H d) at positions at_q (t), k and v (t, G d) of my tokens give o (t, H d). The next piece is on its
/// way while the device computes with this one. A piece that no query here sees is passed on, and nothing is
/// computed.
inline Tensor ring_attention(Communicator& group, const Tensor& q, const Tensor& k, const Tensor& v,
                             const std::vector<Index>& at_q, const KeysOnRing& keys,
                             const AttentionHeads& heads, OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  RingPiece other;
  for (int step = 0; step < ring.steps(); ++step) {
    const Tensor& ks = step == 0 ? k : other.k;
    const Tensor& vs = step == 0 ? v : other.v;
    RingStep next;
    if (step + 1 < ring.steps()) next = ring.pass_on({ks.clone(), vs.clone()}, step + 1);
    attend({q, ks, vs, at_q, ring.at(step)}, heads, softmax);
    other = next.arrived();
  }
  return attended(heads, q.extent(0), softmax);
}

/// ## Backward
/// Keys and values travel again, and with each piece the sum of what devices have added to its gradients; the
/// N-th step brings the sum home. If each device sent its addend to the piece's owner instead, as many bytes
/// would be sent, but not between neighbours; if queries travelled and keys stayed, a piece would be q, o, do
/// and dq, of all query heads, and not k, v, dk and dv, of the fewer key-value heads.
inline AttentionGradients ring_attention_backward(Communicator& group, const Tensor& dout, const Tensor& o,
                                                  const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const KeysOnRing& keys, const AttentionHeads& heads,
                                                  const OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  const std::vector<Index>& at_q = keys.of(group.device_id());
  Tensor dq(q.shape());
  RingPiece other, sum;
  RingStep sums;  // the sums so far of the piece that is here
  for (int step = 0; step < ring.steps(); ++step) {
    const Tensor& ks = step == 0 ? k : other.k;
    const Tensor& vs = step == 0 ? v : other.v;
    RingStep next;
    if (step + 1 < ring.steps()) next = ring.pass_on({ks.clone(), vs.clone()}, step + 1);
    AttentionGradients d = attend_backward(dout, o, {q, ks, vs, at_q, ring.at(step)}, heads, softmax);
    dq = add(std::move(dq), d.dq);
    sum = {std::move(d.dk), std::move(d.dv)};
    if (step > 0) {
      const RingPiece before = sums.arrived();
      sum = {add(std::move(sum.k), before.k), add(std::move(sum.v), before.v)};
    }
    if (ring.steps() > 1) sums = ring.pass_on(std::move(sum), step + 1);
    other = next.arrived();
  }
  if (ring.steps() > 1) sum = sums.arrived();  // of my own piece
  return {std::move(dq), std::move(sum.k), std::move(sum.v)};
}

}  // namespace shard::decoders
