//// 08.1 the first piece by itself
void attend_heads(Tensor z, const Tensor& v, const ScoreRule& rule, bool is_first, Tensor& largest,
                  Tensor& sums, Tensor& weighted) {
  if (is_first) {
    ScorePowers piece = powers_of_scores(std::move(z), rule);
    largest = std::move(piece.largest);
    sums = std::move(piece.sums);
    Tensor stack = stacked(std::move(weighted), v.extent(0));
    matmul_accumulate(piece.powers, v, stack);
    weighted = rows_of(std::move(stack));
    return;
  }
  ScorePowers piece = powers_of_scores(std::move(z), rule, &largest);
  const Index rows = largest.size();
  Tensor factor = exponentials(largest.clone().reshaped({rows, 1}), piece.largest, rule.base);
  factor = std::move(factor).reshaped({rows});
  sums = add(multiply(std::move(sums), factor), piece.sums);
  weighted = scale_rows(std::move(weighted), factor);
  Tensor stack = stacked(std::move(weighted), v.extent(0));
  matmul_accumulate(piece.powers, v, stack);
  weighted = rows_of(std::move(stack));
  largest = std::move(piece.largest);
}
//// 08.1 a helper for the factor
Tensor by_which_to_scale(Tensor before, const Tensor& now, const ScoreRule& rule) {
  const Index rows = now.size();
  return exponentials(std::move(before).reshaped({rows, 1}), now, rule.base).reshaped({rows});
}
void attend_heads(Tensor z, const Tensor& v, const ScoreRule& rule, bool is_first, Tensor& largest,
                  Tensor& sums, Tensor& weighted) {
  auto [p, m, l] = powers_of_scores(std::move(z), rule, is_first ? nullptr : &largest);
  if (is_first) {
    sums = std::move(l);
  } else {
    const Tensor factor = by_which_to_scale(std::move(largest), m, rule);
    sums = add(multiply(std::move(sums), factor), l);
    weighted = scale_rows(std::move(weighted), factor);
  }
  largest = std::move(m);
  weighted = stacked(std::move(weighted), v.extent(0));
  matmul_accumulate(p, v, weighted);
  weighted = rows_of(std::move(weighted));
}
//// 08.1 the product as a tensor of its own
void attend_heads(Tensor z, const Tensor& v, const ScoreRule& rule, bool is_first, Tensor& largest,
                  Tensor& sums, Tensor& weighted) {
  auto [powers, m, more] = powers_of_scores(std::move(z), rule, is_first ? nullptr : &largest);
  Tensor product = rows_of(matmul(powers, v));
  if (!is_first) {
    const Index rows = m.size();
    const Tensor factor = exponentials(std::move(largest).reshaped({rows, 1}), m, rule.base).reshaped({rows});
    sums = add(multiply(std::move(sums), factor), more);
    weighted = add(scale_rows(std::move(weighted), factor), product);
  } else {
    sums = std::move(more);
    weighted = std::move(product);
  }
  largest = std::move(m);
}
//// 08.1 in the order of the text
void attend_heads(Tensor z, const Tensor& v, const ScoreRule& rule, bool is_first, Tensor& largest,
                  Tensor& sums, Tensor& weighted) {
  const Tensor* before = is_first ? nullptr : &largest;
  ScorePowers now = powers_of_scores(std::move(z), rule, before);
  if (before != nullptr) {
    Tensor column = std::move(largest).reshaped({now.largest.size(), 1});
    Tensor factor = exponentials(std::move(column), now.largest, rule.base);
    const Index rows = factor.size();
    factor = std::move(factor).reshaped({rows});
    weighted = scale_rows(std::move(weighted), factor);
    now.sums = add(std::move(now.sums), multiply(std::move(factor), sums));
  }
  sums = std::move(now.sums);
  largest = std::move(now.largest);
  Tensor total = stacked(std::move(weighted), v.extent(0));
  matmul_accumulate(now.powers, v, total);
  weighted = rows_of(std::move(total));
}
//// 08.1 a first piece has the factor 0
void attend_heads(Tensor z, const Tensor& v, const ScoreRule& rule, bool is_first, Tensor& largest,
                  Tensor& sums, Tensor& weighted) {
  auto [powers, m, more] = powers_of_scores(std::move(z), rule, is_first ? nullptr : &largest);
  const Index rows = m.size();
  Tensor factor = is_first ? Tensor({rows})
                           : exponentials(largest.clone().reshaped({rows, 1}), m, rule.base).reshaped({rows});
  weighted = scale_rows(std::move(weighted), factor);
  sums = is_first ? std::move(more) : add(multiply(std::move(sums), factor), more);
  Tensor stack = stacked(std::move(weighted), v.extent(0));
  matmul_accumulate(powers, v, stack);
  weighted = rows_of(std::move(stack));
  largest = m.clone();
}
//// 08.2 pieces are swapped
inline Tensor ring_attention(Communicator& group, const Tensor& q, const Tensor& k, const Tensor& v,
                             const std::vector<Index>& at_q, const KeysOnRing& keys,
                             const AttentionHeads& heads, OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  const int last = ring.steps() - 1;
  RingPiece here;
  const Tensor *ks = &k, *vs = &v;
  for (int step = 0; step <= last; ++step) {
    std::optional<RingStep> next;
    if (step < last) next = ring.pass_on(RingPiece{ks->clone(), vs->clone()}, step + 1);
    attend(AttentionPiece{q, *ks, *vs, at_q, ring.at(step)}, heads, softmax);
    if (!next) break;
    here = next->arrived();
    ks = &here.k, vs = &here.v;
  }
  return attended(heads, q.extent(0), softmax);
}
//// 08.2 step 0 stands before the loop
inline Tensor ring_attention(Communicator& group, const Tensor& q, const Tensor& k, const Tensor& v,
                             const std::vector<Index>& at_q, const KeysOnRing& keys,
                             const AttentionHeads& heads, OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  if (ring.steps() == 1) {
    attend({q, k, v, at_q, ring.at(0)}, heads, softmax);
    return attended(heads, q.extent(0), softmax);
  }
  RingStep next = ring.pass_on({k.clone(), v.clone()}, 1);
  attend({q, k, v, at_q, ring.at(0)}, heads, softmax);
  RingPiece here = next.arrived();
  for (int step = 1; step < ring.steps(); ++step) {
    const bool goes_on = step + 1 < ring.steps();
    if (goes_on) next = ring.pass_on({here.k.clone(), here.v.clone()}, step + 1);
    attend({q, here.k, here.v, at_q, ring.at(step)}, heads, softmax);
    if (goes_on) here = next.arrived();
  }
  return attended(heads, q.extent(0), softmax);
}
inline AttentionGradients ring_attention_backward(Communicator& group, const Tensor& dout, const Tensor& o,
                                                  const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const KeysOnRing& keys, const AttentionHeads& heads,
                                                  const OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  const std::vector<Index>& at_q = keys.of(group.device_id());
  if (ring.steps() == 1) return attend_backward(dout, o, {q, k, v, at_q, ring.at(0)}, heads, softmax);
  RingStep next = ring.pass_on({k.clone(), v.clone()}, 1), sums;
  Tensor dq;
  {
    AttentionGradients d = attend_backward(dout, o, {q, k, v, at_q, ring.at(0)}, heads, softmax);
    dq = std::move(d.dq);
    sums = ring.pass_on({std::move(d.dk), std::move(d.dv)}, 1);
  }
  RingPiece here = next.arrived();
  for (int step = 1; step < ring.steps(); ++step) {
    if (step + 1 < ring.steps()) next = ring.pass_on({here.k.clone(), here.v.clone()}, step + 1);
    AttentionGradients d = attend_backward(dout, o, {q, here.k, here.v, at_q, ring.at(step)}, heads, softmax);
    dq = add(std::move(dq), d.dq);
    d.dq = Tensor();
    {
      const RingPiece before = sums.arrived();
      d.dk = add(std::move(d.dk), before.k);
      d.dv = add(std::move(d.dv), before.v);
    }
    sums = ring.pass_on({std::move(d.dk), std::move(d.dv)}, step + 1);
    if (step + 1 < ring.steps()) here = next.arrived();
  }
  RingPiece mine = sums.arrived();
  return {std::move(dq), std::move(mine.k), std::move(mine.v)};
}
//// 08.2 what came is added to
inline AttentionGradients ring_attention_backward(Communicator& group, const Tensor& dout, const Tensor& o,
                                                  const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const KeysOnRing& keys, const AttentionHeads& heads,
                                                  const OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  const std::vector<Index>& at_q = keys.of(group.device_id());
  AttentionGradients all{Tensor(q.shape()), Tensor(), Tensor()};
  RingPiece other;
  RingStep sums;
  for (int step = 0; step < ring.steps(); ++step) {
    const bool is_mine = step == 0;
    RingStep next;
    if (step < ring.steps() - 1)
      next = ring.pass_on({(is_mine ? k : other.k).clone(), (is_mine ? v : other.v).clone()}, step + 1);
    AttentionGradients d = attend_backward(
        dout, o, {q, is_mine ? k : other.k, is_mine ? v : other.v, at_q, ring.at(step)}, heads, softmax);
    all.dq = add(std::move(all.dq), d.dq);
    if (!is_mine) {
      RingPiece came = sums.arrived();
      d.dk = add(std::move(came.k), d.dk);
      d.dv = add(std::move(came.v), d.dv);
    }
    if (ring.steps() == 1) {
      all.dk = std::move(d.dk), all.dv = std::move(d.dv);
    } else {
      sums = ring.pass_on({std::move(d.dk), std::move(d.dv)}, step + 1);
    }
    other = next.arrived();
  }
  if (ring.steps() > 1) {
    RingPiece home = sums.arrived();
    all.dk = std::move(home.k);
    all.dv = std::move(home.v);
  }
  return all;
}
//// 08.2 a helper for a step
inline RingStep passed_on(const Ring& ring, const Tensor& k, const Tensor& v, int step) {
  if (step + 1 >= ring.steps()) return {};
  return ring.pass_on({k.clone(), v.clone()}, step + 1);
}
inline Tensor ring_attention(Communicator& group, const Tensor& q, const Tensor& k, const Tensor& v,
                             const std::vector<Index>& at_q, const KeysOnRing& keys,
                             const AttentionHeads& heads, OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  RingPiece other;
  int step = 0;
  do {
    const Tensor& ks = step > 0 ? other.k : k;
    const Tensor& vs = step > 0 ? other.v : v;
    RingStep next = passed_on(ring, ks, vs, step);
    attend({q, ks, vs, at_q, ring.at(step)}, heads, softmax);
    other = next.arrived();
  } while (++step < ring.steps());
  return attended(heads, q.extent(0), softmax);
}
//// 08.2 pointers to the piece that is here
inline Tensor ring_attention(Communicator& group, const Tensor& q, const Tensor& k, const Tensor& v,
                             const std::vector<Index>& at_q, const KeysOnRing& keys,
                             const AttentionHeads& heads, OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  RingPiece came;
  const Tensor* here[2] = {&k, &v};
  for (int left = ring.steps() - 1, step = 0; left >= 0; --left, ++step) {
    RingStep next;
    if (left > 0) next = ring.pass_on({here[0]->clone(), here[1]->clone()}, step + 1);
    const AttentionPiece piece{q, *here[0], *here[1], at_q, ring.at(step)};
    attend(piece, heads, softmax);
    came = next.arrived();
    here[0] = &came.k, here[1] = &came.v;
  }
  return attended(heads, q.extent(0), softmax);
}
//// 08.2 red: a copy of the own piece
inline Tensor ring_attention(Communicator& group, const Tensor& q, const Tensor& k, const Tensor& v,
                             const std::vector<Index>& at_q, const KeysOnRing& keys,
                             const AttentionHeads& heads, OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  RingPiece here{k.clone(), v.clone()};
  for (int step = 0; step < ring.steps(); ++step) {
    RingStep next;
    if (step + 1 < ring.steps()) next = ring.pass_on({here.k.clone(), here.v.clone()}, step + 1);
    attend({q, here.k, here.v, at_q, ring.at(step)}, heads, softmax);
    if (step + 1 < ring.steps()) here = next.arrived();
  }
  return attended(heads, q.extent(0), softmax);
}
inline AttentionGradients ring_attention_backward(Communicator& group, const Tensor& dout, const Tensor& o,
                                                  const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const KeysOnRing& keys, const AttentionHeads& heads,
                                                  const OnlineSoftmax& softmax) {
  const Ring ring(group, keys, heads);
  const std::vector<Index>& at_q = keys.of(group.device_id());
  Tensor dq(q.shape());
  RingPiece here{k.clone(), v.clone()}, sum;
  RingStep sums;
  for (int step = 0; step < ring.steps(); ++step) {
    RingStep next;
    if (step + 1 < ring.steps()) next = ring.pass_on({here.k.clone(), here.v.clone()}, step + 1);
    AttentionGradients d = attend_backward(dout, o, {q, here.k, here.v, at_q, ring.at(step)}, heads, softmax);
    dq = add(std::move(dq), d.dq);
    sum = {d.dk.clone(), d.dv.clone()};
    if (step > 0) {
      const RingPiece before = sums.arrived();
      sum = {add(std::move(sum.k), before.k), add(std::move(sum.v), before.v)};
    }
    if (ring.steps() > 1) sums = ring.pass_on(std::move(sum), step + 1);
    if (step + 1 < ring.steps()) here = next.arrived();
  }
  if (ring.steps() > 1) sum = sums.arrived();
  return {std::move(dq), std::move(sum.k), std::move(sum.v)};
}
