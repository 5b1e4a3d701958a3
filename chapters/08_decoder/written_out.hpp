#pragma once

/// A decoder on one device, written out: block, network and loss, from the first line to the last. Nothing here
/// knows of layouts or of other devices. The engines of this chapter compute the same with a block in pieces, so
/// that they can cut it; a test holds them equal, bit for bit. They also know experts, biases, and a table that
/// is the head too; this file does not.
///
/// T = B S tokens of B sequences, D the width of the stream, H heads of width d, G key-value heads, F hidden
/// units, V tokens in the vocabulary. Source: Jiang et al. 2023, "Mistral 7B", with the norms, rotary positions
/// and gates of Zhang and Sennrich 2019, Su et al. 2021, and Shazeer 2020.

#include "engine/engines/sharded_engine.hpp"
#include "engine/layers/tokens/tokens.hpp"
#include "engine/workloads/decoder/model.hpp"

namespace shard::decoders {

class WrittenOut : public ShardedEngine {
 public:
  WrittenOut(Communicator& group, const DecoderModel& model) : ShardedEngine(group), m_(model) {}

  void load_checkpoint(const Checkpoint& c) override {
    w_.blocks.resize(static_cast<std::size_t>(m_.num_blocks));
    for_each_weight([&](const std::string& name, Tensor& w) { w = c.whole(name); });
  }

  /// ## The network
  /// x is the residual stream: attention and the feed-forward read it through a norm, and add to it.
  Placed forward(Tensor input) override {
    Saved kept{.tokens = Tokens::read(input, m_.vocabulary)};
    Tensor x = gather_rows(w_.embedding, kept.tokens.ids);  // (T, D)
    for (const Block& w : w_.blocks) {
      SavedOfBlock& k = kept.blocks.emplace_back();
      x = add(std::move(x), attention(normed(x, w.attention_norm, k.attention_norm), w, kept.tokens, k));
      x = add(std::move(x), feed_forward(normed(x, w.feed_forward_norm, k.feed_forward_norm), w, k));
    }
    kept.n = normed(x, w_.final_norm, kept.norm);                                  // (T, D)
    Tensor z = scale(matmul(kept.n, transposed(w_.head)), m_.how.logit_scale);     // (T, V)
    Replicated losses(group(), cross_entropy(std::move(z), kept.tokens, kept.p));  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// d is the gradient of the residual stream. What comes back through each norm is added to it.
  Gradients backward(Tensor dlosses) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Tensor dz = cross_entropy_backward(dlosses, kept.tokens, std::move(kept.p));  // (T, V)
    put(gradients, head_name(), matmul(transposed(dz), kept.n));                        // (V, D)
    Tensor d = norm_backward(matmul(dz, w_.head), w_.final_norm, kept.norm, gradients, final_norm_name());
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      const Block& w = w_.blocks[static_cast<std::size_t>(b)];
      SavedOfBlock& k = kept.blocks.back();
      Tensor dn = feed_forward_backward(d, w, k, gradients, b);  // (T, D)
      d = add(std::move(d), norm_backward(std::move(dn), w.feed_forward_norm, k.feed_forward_norm, gradients,
                                          block_name(b, "feed_forward_norm")));
      dn = attention_backward(d, w, kept.tokens, k, gradients, b);  // (T, D)
      d = add(std::move(d), norm_backward(std::move(dn), w.attention_norm, k.attention_norm, gradients,
                                          block_name(b, "attention_norm")));
    }
    Tensor dembedding({m_.vocabulary, m_.model_dim});  // (V, D)
    scatter_add_rows(d, kept.tokens.ids, dembedding);
    put(gradients, embedding_name(), std::move(dembedding));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override {
    Trainables all;
    for_each_weight([&](const std::string& name, Tensor& w) {
      Ranges ranges;
      for (Index extent : w.shape()) ranges.push_back({0, extent});
      all.push_back({name, Rows(w), w.shape(), ranges});
    });
    return all;
  }

 private:
  struct Block {
    Tensor attention_norm;     // (D)
    Tensor query, key, value;  // (D, H d), (D, G d), (D, G d)
    Tensor output;             // (H d, D)
    Tensor feed_forward_norm;  // (D)
    Tensor gate, up, down;     // (D, F), (D, F), (F, D)
  };
  struct Normed {
    Tensor x_hat, r;  // (T, D), (T)
  };
  struct SavedOfBlock {
    Normed attention_norm, feed_forward_norm;
    Tensor n, q, k, v, o;  // (T, D), (T, H d), (T, G d), (T, G d), (T, H d)
    Tensor largest, sums;  // (B H S)   of each row of scores
    Tensor f, g, u, h;     // (T, D), (T, F), (T, F), (T, F)
  };
  struct Saved {
    Tokens tokens;
    std::vector<SavedOfBlock> blocks{};
    Normed norm{};
    Tensor n{}, p{};  // (T, D), (T, V)
  };

  /// ## The norm: y = x̂ w with x̂ = x / √(mean of x² + ε)
  Tensor normed(const Tensor& x, const Tensor& w, Normed& k) const {
    k.r = inverse_root(mean(row_dots(x, x)), 1, m_.epsilon);  // (T)
    k.x_hat = m_.how.rounded(scale_rows(x.clone(), k.r));     // (T, D)
    return scale_columns(k.x_hat.clone(), w);                 // (T, D)
  }
  Tensor norm_backward(Tensor dy, const Tensor& w, const Normed& k, Gradients& gradients,
                       const std::string& name) const {
    put(gradients, name, column_dots(dy, k.x_hat));              // (D)
    Tensor d = scale_columns(std::move(dy), w);                  // (T, D)   dx̂
    const Tensor c = mean(row_dots(d, k.x_hat));                 // (T)
    d = subtract(std::move(d), scale_rows(k.x_hat.clone(), c));  // (T, D)
    return m_.how.rounded(scale_rows(std::move(d), k.r));        // (T, D)
  }
  Tensor mean(Tensor sums) const { return scale(std::move(sums), 1 / static_cast<float>(m_.model_dim)); }

  /// ## Attention: o = softmax(q kᵀ · scale) v for each head of each sequence
  Tensor attention(Tensor n, const Block& w, const Tokens& t, SavedOfBlock& k) const {
    k.n = std::move(n);                      // (T, D)
    k.q = rotated(matmul(k.n, w.query), t);  // (T, H d)
    k.k = rotated(matmul(k.n, w.key), t);    // (T, G d)
    k.v = matmul(k.n, w.value);              // (T, G d)
    auto [powers, largest, sums] = powers_of_scores(scores(t, k), causal(t));
    k.largest = std::move(largest), k.sums = std::move(sums);            // (B H S)
    Tensor o = as_rows(matmul(powers, stack_heads(k.v, key_heads(t))));  // (B H S, d)
    o = m_.how.rounded(divide_rows(std::move(o), k.sums));
    k.o = Tensor(k.q.shape());
    add_heads(std::move(o).reshaped({t.sequences * m_.heads, t.length, m_.head_dim}), heads(t), k.o);
    return matmul(k.o, w.output);  // (T, D)
  }
  Tensor attention_backward(const Tensor& d, const Block& w, const Tokens& t, SavedOfBlock& k,
                            Gradients& gradients, Index b) const {
    put(gradients, block_name(b, "output"), matmul(transposed(k.o), d));  // (H d, D)
    const Tensor dout = matmul(d, transposed(w.output));                  // (T, H d)
    const Tensor p = m_.how.rounded(softmax_of_scores(scores(t, k), causal(t), k.largest, k.sums));
    const Tensor of_heads = stack_heads(dout, heads(t));                       // (B H, S, d)
    Tensor ds = matmul(of_heads, transposed(stack_heads(k.v, key_heads(t))));  // (B H, S, S)   dp
    const Tensor dots = row_dots(as_rows(of_heads.clone()), as_rows(stack_heads(k.o, heads(t))));
    ds = m_.how.rounded(softmax_of_scores_backward(std::move(ds), p, dots, 1));
    ds = scale(std::move(ds), m_.how.score_scale);
    Tensor dq(k.q.shape()), dk(k.k.shape()), dv(k.v.shape());
    add_heads(matmul(ds, stack_heads(k.k, key_heads(t))), heads(t), dq);
    add_heads(matmul(transposed(ds), stack_heads(k.q, heads(t))), key_heads(t), dk);
    add_heads(matmul(transposed(p), of_heads), key_heads(t), dv);
    dq = m_.how.rounded(rotate_backward(std::move(dq), t.positions, m_.head_dim, m_.rope_base));
    dk = m_.how.rounded(rotate_backward(std::move(dk), t.positions, m_.head_dim, m_.rope_base));
    put(gradients, block_name(b, "query"), matmul(transposed(k.n), dq));  // (D, H d)
    put(gradients, block_name(b, "key"), matmul(transposed(k.n), dk));    // (D, G d)
    put(gradients, block_name(b, "value"), matmul(transposed(k.n), dv));  // (D, G d)
    Tensor dn = matmul(dq, transposed(w.query));                          // (T, D)
    dn = add(std::move(dn), matmul(dk, transposed(w.key)));
    return add(std::move(dn), matmul(dv, transposed(w.value)));
  }
  Tensor rotated(Tensor t, const Tokens& tokens) const {
    return m_.how.rounded(rotate(std::move(t), tokens.positions, m_.head_dim, m_.rope_base));
  }
  Tensor scores(const Tokens& t, const SavedOfBlock& k) const {  // (B H, S, S)
    Tensor z = matmul(stack_heads(k.q, heads(t)), transposed(stack_heads(k.k, key_heads(t))));
    return m_.how.exponents(scale(std::move(z), m_.how.score_scale));
  }
  /// A query sees the keys at its position and before, or the last `window` of them.
  ScoreRule causal(const Tokens& t) const {
    return {1, m_.window ? 1 - *m_.window : -t.length, 0, m_.how.base};
  }
  /// All heads of all sequences as a stack; and for each of them its key-value head.
  HeadBlock heads(const Tokens& t) const {
    return {t.sequences, {0, t.sequences}, {0, t.length}, m_.head_dim, positions_from(0, m_.heads)};
  }
  HeadBlock key_heads(const Tokens& t) const {
    HeadBlock block = heads(t);
    for (Index& head : block.heads) head /= m_.shared();
    return block;
  }
  static Tensor as_rows(Tensor stack) {
    const Shape shape = stack.shape();
    return std::move(stack).reshaped({shape[0] * shape[1], shape[2]});
  }

  /// ## The feed-forward: y = (silu(n gate) · n up) down
  Tensor feed_forward(Tensor n, const Block& w, SavedOfBlock& k) const {
    k.f = std::move(n);                                              // (T, D)
    k.g = matmul(k.f, w.gate), k.u = matmul(k.f, w.up);              // (T, F)
    k.h = m_.how.rounded(multiply(m_.how.rounded(silu(k.g)), k.u));  // (T, F)
    return matmul(k.h, w.down);                                      // (T, D)
  }
  Tensor feed_forward_backward(const Tensor& d, const Block& w, SavedOfBlock& k, Gradients& gradients,
                               Index b) const {
    auto name = [&](const char* word) { return feed_forward_name(m_, b, 0, word); };
    put(gradients, name("down"), matmul(transposed(k.h), d));                              // (F, D)
    const Tensor dh = matmul(d, transposed(w.down));                                       // (T, F)
    const Tensor dg = m_.how.rounded(silu_backward(multiply(std::move(k.u), dh), k.g));    // (T, F)
    const Tensor du = m_.how.rounded(multiply(m_.how.rounded(silu(std::move(k.g))), dh));  // (T, F)
    put(gradients, name("gate"), matmul(transposed(k.f), dg));                             // (D, F)
    put(gradients, name("up"), matmul(transposed(k.f), du));                               // (D, F)
    return add(matmul(dg, transposed(w.gate)), matmul(du, transposed(w.up)));              // (T, D)
  }

  /// ## The loss of each token: log Σ exp z − z of the next token; 0 without a label
  Tensor cross_entropy(Tensor z, const Tokens& t, Tensor& p) const {
    z = m_.how.exponents(std::move(z));                     // (T, V)
    const Tensor largest = row_max(z);                      // (T)
    const Tensor of_labels = take_columns(z, t.labels, 1);  // (T, 1)
    p = exponentials(std::move(z), largest, m_.how.base);   // (T, V)
    const Tensor sums = row_sums(p);                        // (T)
    p = divide_rows(std::move(p), sums);
    return m_.how.rounded(losses_of_labels(largest, sums, of_labels, t.labels, m_.how.base));
  }
  Tensor cross_entropy_backward(const Tensor& dlosses, const Tokens& t, Tensor p) const {
    std::vector<float> has_label;
    for (Index label : t.labels) has_label.push_back(label == no_slot ? 0 : 1);
    const Tensor mask = Tensor::from_host({t.rows()}, has_label);
    const Tensor ones = Tensor::from_host({t.rows(), 1}, std::vector<float>(has_label.size(), 1));
    const Tensor d = multiply(dlosses.clone().reshaped({t.rows()}), mask);  // (T)
    p = scale_rows(subtract_at_columns(std::move(p), t.labels, ones), d);   // (T, V)   p − 1 at the label
    return scale(m_.how.rounded(std::move(p)), m_.how.logit_scale);
  }

  void put(Gradients& gradients, const std::string& name, Tensor gradient) const {
    gradients.put(name, Replicated(group(), std::move(gradient)));
  }
  template <class Visit>
  void for_each_weight(const Visit& visit) {
    visit(embedding_name(), w_.embedding), visit(final_norm_name(), w_.final_norm),
        visit(head_name(), w_.head);
    for (Index b = 0; b < m_.num_blocks; ++b) {
      Block& w = w_.blocks[static_cast<std::size_t>(b)];
      auto of_block = [&](const char* word, Tensor& t) { visit(block_name(b, word), t); };
      of_block("attention_norm", w.attention_norm), of_block("feed_forward_norm", w.feed_forward_norm);
      of_block("query", w.query), of_block("key", w.key), of_block("value", w.value),
          of_block("output", w.output);
      for (const auto& [word, t] :
           {std::pair("gate", &w.gate), std::pair("up", &w.up), std::pair("down", &w.down)})
        visit(feed_forward_name(m_, b, 0, word), *t);
    }
  }

  struct Weights {
    Tensor embedding, head, final_norm;  // (V, D), (V, D), (D)
    std::vector<Block> blocks;
  };
  DecoderModel m_;
  Weights w_;
  Tape<Saved> tape_;
};

}  // namespace shard::decoders
