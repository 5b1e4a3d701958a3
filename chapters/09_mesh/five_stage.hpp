#pragma once

/// What a device computes at its place on the axis pipeline: some blocks; the embedding before the first one,
/// and the loss behind the last one. Keys and values of its heads travel around the ring of the devices along
/// context. Tokens are sent to their experts along expert, and along no other axis. (Part of five.hpp.)

#include "engine/schedules/stage_worker.hpp"
#include "five_batch.hpp"
#include "five_network.hpp"

namespace shard::meshes {

template <class K>
struct FiveStage {
  using Block = FiveBlock<Weight, ExpertWeight, K>;
  using BlockGradients = FiveBlock<Addend, ExpertAddend, K>;
  using BlockKept = FiveBlockKept<K>;
  using Kept = decoders::Kept<BlockKept, Activation<R>>;

  FiveEngine& engine;
  DecoderModel m;
  KeyValueCache& cache;
  std::function<void(const Tensor& logits, const Tokens&, Index first_column)> show_logits;
  std::function<void(Index block, const ExpertChoice&, const Tokens&)> note_choice;
  FiveParts<K> parts;
  Range blocks{};  ///< its own
  FiveWeights<K> w{};

  bool is_first() const { return blocks.begin == 0; }
  bool is_last() const { return blocks.end == m.num_blocks; }
  const Weight<S<0>>& head() const { return w.own_head.is_empty() ? w.embedding : w.own_head; }

  /// x (T, D) through the blocks. The first stage takes none, but makes it of the tokens. The last one
  /// returns the losses, (T, 1).
  Activation<R> forward(Activation<R> x, const FivePiece& piece, const decoders::KeysOnRing& keys,
                        Kept& kept) const {
    if (is_first()) x = parts.embedded(w.embedding, piece.tokens, piece.all_rows);  // (T, D)
    for (Index b = blocks.begin; b < blocks.end; ++b) {
      const Block& block = w.blocks[static_cast<std::size_t>(b)];
      BlockKept& k = kept.blocks.emplace_back();
      accumulate(x, parts.over_tensor(parts.attend(b, block, x, piece.tokens, k, cache, keys)));
      accumulate(x, parts.over_tensor(m.is_mixture() ? ask_experts(block, x, k)
                                                     : parts.feed_forward_block(block, x, k)));
      note_choice(b, k.choice, piece.tokens);
    }
    if (!is_last()) return x;
    kept.n = rms_norm(x, w.final_norm, m.epsilon, m.how, kept.norm);                    // (T, D)
    Activation<S<1>> z = scale(matmul(kept.n, transposed(head())), m.how.logit_scale);  // (T, V/N)
    show_logits(z.local(), piece.tokens, head().ranges()[0].begin);
    return parts.cross_entropy(std::move(z), piece.tokens, kept.softmax);
  }

  /// d is the gradient of what `forward` returned. Adds the weights' gradients to dw. Returns the gradient of
  /// x, (T, D), unless this is the first stage.
  Activation<R> backward(Activation<R> d, const FivePiece& piece, const decoders::KeysOnRing& keys, Kept kept,
                         FiveAddends<K>& dw) const {
    dw.blocks.resize(static_cast<std::size_t>(m.num_blocks));
    if (is_last()) d = loss_backward(d, piece.tokens, kept, dw);  // (T, D)
    for (Index b = blocks.end - 1; b >= blocks.begin; --b, kept.blocks.pop_back()) {
      const Block& block = w.blocks[static_cast<std::size_t>(b)];
      BlockGradients& g = dw.blocks[static_cast<std::size_t>(b)];
      BlockKept& k = kept.blocks.back();
      accumulate(d, m.is_mixture() ? ask_experts_backward(block, d, k, g)
                                   : parts.feed_forward_block_backward(block, d, k, g));
      accumulate(d, parts.attend_backward(block, d, piece.tokens, k, g, keys));
    }
    if (!is_first()) return d;
    accumulate(dw.embedding, parts.embedding_backward(d, piece.tokens));
    return {};
  }

 private:
  Communicator& along_expert() const { return engine.mesh().axis(experts::name); }

  Activation<R> loss_backward(const Activation<R>& dlosses, const Tokens& t, Kept& kept,
                              FiveAddends<K>& dw) const {
    Activation<S<1>> dz = parts.cross_entropy_backward(dlosses, t, std::move(kept.softmax));  // (T, V/N)
    accumulate(dw.own_head, matmul(transposed(dz), kept.n));  // (V/N, D)   P over my rows
    Activation<R> d = parts.over_tensor(matmul(dz, head()));  // (T, D)     S1·S0 = P → R
    dz = {};
    return parts.norm_backward(std::move(d), w.final_norm, kept.norm, dw.final_norm);
  }

  /// ## Experts, forward
  /// The router's choice, tokens to their experts, and answers back. The devices along tensor have the same
  /// tokens, so they choose the same, and each sends to its own parts of the experts. An answer is an addend.
  Activation<P> ask_experts(const Block& block, const Activation<R>& x, BlockKept& k) const {
    k.f = rms_norm(x, block.feed_forward_norm, m.epsilon, m.how, k.feed_forward_norm);  // (T, D)
    k.choice = choose_experts(matmul(k.f, block.router), m.top_k, m.how);               // of (T, E)
    const std::vector<Index> leaving = k.choice.counts();
    k.route = decoders::route_of(leaving, decoders::arriving(along_expert(), leaving),
                                 along_expert().num_devices(), along_expert().device_id());
    Tensor n = gather_rows(k.f.local(), decoders::leaving_rows(k.choice));  // (T · k, D)   by expert
    n = sent(std::move(n), k.route.to, k.route.from);                       // (m, D)   tokens for my experts
    Tensor y = answers(routed(), std::move(n), k.route, my_experts(block), m.how, k.experts);
    k.answers = sent(std::move(y), k.route.from, k.route.to);  // (T · k, D)   back, as they left
    return Activation<P>::uneven(engine.mesh(), combine_rows(k.answers, k.choice.slots(), k.choice.gates),
                                 k.f.global_shape());
  }

  /// ## Experts, backward
  /// Gradients of answers go to the experts, and gradients of tokens come back. An expert's gradient is an
  /// addend over data and context, where its copies are. Over expert it is whole: all tokens of this copy
  /// came here.
  Activation<R> ask_experts_backward(const Block& block, const Activation<R>& d, BlockKept& k,
                                     BlockGradients& g) const {
    const std::vector<Index> slots = k.choice.slots();
    Activation<P> dgates = Activation<P>::uneven(
        engine.mesh(), dot_rows(d.local(), k.answers, slots, m.top_k), {d.global_shape()[0], m.top_k});
    k.answers = Tensor();
    Tensor dy = gather_rows(d.local(), decoders::leaving_rows(k.choice));  // (T · k, D)
    dy = m.how.rounded(scale_rows(std::move(dy), k.choice.gates, k.choice.in_order()));
    dy = sent(std::move(dy), k.route.to, k.route.from);  // (m, D)   of my experts' answers
    std::vector<FeedForwardGradients<Routed<R>, ExpertWeight<S<1>>, ExpertWeight<S<0>>>> dw;
    Tensor dn = answers_backward(routed(), std::move(dy), k.route, my_experts(block), m.how, k.experts,
                                 dw);  // (m, D)
    g.routed.resize(static_cast<std::size_t>(m.experts));
    auto sums = g.routed.begin() + my_range().begin;
    for (auto& of_expert : dw) parts.add_to(*sums++, std::move(of_expert));
    dn = sent(std::move(dn), k.route.from, k.route.to);  // (T · k, D)   of my tokens
    Activation<R> df = parts.over_tensor(Activation<P>::uneven(
        engine.mesh(), combine_rows(dn, slots, m.top_k), k.f.global_shape()));  // (T, D)   P → R
    dn = Tensor();
    const Activation<R> dlogits =
        choose_experts_backward(parts.over_tensor(std::move(dgates)), k.choice, m.how);  // (T, E)
    accumulate(g.router, matmul(transposed(k.f), dlogits));  // (D, E)   (P, O, P, P, R)
    df = std::move(df) + matmul(dlogits, transposed(block.router));
    return parts.norm_backward(std::move(df), block.feed_forward_norm, k.feed_forward_norm,
                               g.feed_forward_norm);
  }

  /// This device's experts of a block.
  Range my_range() const { return part(m.experts, along_expert().num_devices(), along_expert().device_id()); }
  std::span<const FeedForward<ExpertWeight<S<1>>, ExpertWeight<S<0>>>> my_experts(const Block& block) const {
    return std::span(block.routed)
        .subspan(static_cast<std::size_t>(my_range().begin), static_cast<std::size_t>(my_range().size()));
  }
  /// Tokens that came to one of them.
  auto routed() const {
    return [this](Tensor rows) {
      Shape shape = rows.shape();
      return Routed<R>::uneven(engine.mesh(), std::move(rows), std::move(shape));
    };
  }
  /// Sends each device along expert its number of rows, and receives from each as many as it has announced.
  Tensor sent(Tensor rows, const std::vector<Index>& to, const std::vector<Index>& from,
              SourceLine where = SourceLine::current()) const {
    Tensor arrived = along_expert().all_to_all_async(std::move(rows), to, 0, where).get(where);
    decoders::require_announced_everywhere(along_expert(), from, arrived);
    return arrived;
  }
};

/// What a device does with the micro-batches of its sequences. It sends to the device that has the next stage,
/// and the same place on the other axes.
template <class K>
struct FivePart {
  using Value = Activation<R>;
  using Kept = typename FiveStage<K>::Kept;

  const FiveStage<K>& stage;
  FiveBatch batch;
  FiveAddends<K> addends;  ///< summed over the micro-batches, and still to be reduced

  Value input(Index) const { return {}; }
  Value forward(Index m, int, Value x, Kept& kept) const {
    return stage.forward(std::move(x), batch.piece(m), batch.keys(), kept);
  }
  Value backward(Index m, int, Value d, Kept kept) {
    return stage.backward(std::move(d), batch.piece(m), batch.keys(), std::move(kept), addends);
  }
  Value output_gradient(Index m, const Value& losses, const LossGradient& loss_gradient) const {
    return of_piece(batch.gradient_of(losses.local(), m, loss_gradient), m);
  }
  std::vector<Shape> shapes(const Message& m) const {
    return {{batch.piece(m.micro_batch).tokens.rows(), stage.m.model_dim}};
  }
  Tensor sent(Value& x, std::size_t) const { return std::move(x).local(); }
  Value value(const Message& m, std::vector<Tensor> t) const {
    return of_piece(std::move(t[0]), m.micro_batch);
  }
  /// Rows of a micro-batch, (t, D) or (t, 1).
  Value of_piece(Tensor rows, Index m) const {
    const Shape global = {batch.piece(m).all_rows, rows.extent(1)};
    return Value::uneven(stage.engine.mesh(), std::move(rows), global);
  }
};

}  // namespace shard::meshes
