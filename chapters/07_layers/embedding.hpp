#pragma once

/// Embedding: row i of the output is the table's row of token x_i. Rows and features are free. A table whose
/// rows are divided, the vocabulary, costs a sum, to which one device contributes and the others zeros.

#include "engine/layers/tokens/embedding.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// Tokens are numbers in a column (B, 1).
inline std::vector<Index> tokens_of(const Tensor& column) {
  std::vector<Index> tokens;
  for (float number : column.to_host()) tokens.push_back(static_cast<Index>(number));
  return tokens;
}

/// The layer, whole or with its tokens cut.
template <Layout Rows>
class Embedding : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { table_ = load_replicated(c, "table"); }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor x) override {
    tokens_ = tokens_of(x);
    return input<Rows>(gather_rows(table_.local(), tokens_));  // (B, D)
  }
  Gradients backward(Tensor dy) override {
    Gradients gradients;
    gradients.put("table", summed(embedding_backward(input<Rows>(std::move(dy)), tokens_,
                                                     table_.global_shape()[0])));  // (V, D)   R, or P → R
    return gradients;
  }

 private:
  Replicated table_;           // (V, D)
  std::vector<Index> tokens_;  // (B)
};

/// The features are cut: each device looks up its columns.
class EmbeddingByFeatures : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { table_ = load_sharded<1>(c, "table"); }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    tokens_ = tokens_of(x);
    return shard::embedding(table_, tokens_);  // (B, D/N)
  }
  Gradients backward(Tensor dy) override {
    Gradients gradients;
    gradients.put("table", embedding_backward(dy, tokens_, table_));  // (V, D/N)
    return gradients;
  }

 private:
  Sharded<1> table_;  // (V, D/N)
  std::vector<Index> tokens_;
};

/// The vocabulary is cut. A device adds the rows of its tokens, and zeros for other tokens. The naive cut has
/// no sum: it takes the nearest row that it has.
template <bool is_naive>
class EmbeddingByVocabulary : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { table_ = load_sharded<0>(c, "table"); }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    tokens_ = tokens_of(x);
    if constexpr (!is_naive) return all_reduce(shard::embedding(table_, tokens_));  // (B, D)   P → R
    const Index rows = std::max<Index>(table_.local().extent(0), 1);
    for (Index& token : tokens_) token = std::clamp(token, table_.offset(), table_.offset() + rows - 1);
    return Replicated(group(), addend_of(shard::embedding(table_, tokens_)));
  }
  Gradients backward(Tensor dy) override {
    Gradients gradients;
    gradients.put("table",
                  embedding_backward(Replicated(group(), std::move(dy)), tokens_, table_));  // (V/N, D)
    return gradients;
  }

 private:
  Sharded<0> table_;           // (V/N, D)
  std::vector<Index> tokens_;  // (B)
};

}  // namespace shard::layer_cuts
