#pragma once

/// Embedding: row i of the output is the table's row of token x_i. Rows and features are free. A table whose
/// rows are divided, the vocabulary, costs a sum, to which one device contributes and the others zeros.

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
    x_ = input<Rows>(std::move(x));                                            // (B, 1)
    return rows_like(x_, gather_rows(table_.local(), tokens_of(x_.local())));  // (B, D)
  }
  Gradients backward(Tensor dy) override {
    Tensor d(table_.global_shape());  // (V, D)
    scatter_add_rows(dy, tokens_of(x_.local()), d);
    Gradients gradients;
    gradients.put("table", over_rows(x_, std::move(d)));  // R, or P → R
    return gradients;
  }

 private:
  Replicated table_;  // (V, D)
  Rows x_;            // (B, 1)
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
    const Shape shape = {x.extent(0), table_.global_shape()[1]};
    return Sharded<1>(group(), gather_rows(table_.local(), tokens_), shape, table_.offset());  // (B, D/N)
  }
  Gradients backward(Tensor dy) override {
    Tensor d(table_.local().shape());  // (V, D/N)
    scatter_add_rows(dy, tokens_, d);
    Gradients gradients;
    gradients.put("table", as(table_, std::move(d)));
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
    mine_ = tokens_of(x);
    const Index rows = table_.local().extent(0);
    for (Index& token : mine_) {
      token -= table_.offset();
      if (token >= 0 && token < rows) continue;
      token = is_naive && rows > 0 ? std::clamp<Index>(token, 0, rows - 1) : no_slot;
    }
    Tensor found = combine_rows(table_.local(), mine_, 1);  // (B, D)   0 for no_slot
    if constexpr (is_naive) return Replicated(group(), std::move(found));
    return all_reduce(Partial(group(), std::move(found)));  // P → R
  }
  Gradients backward(Tensor dy) override {
    Tensor d(table_.local().shape());  // (V/N, D)
    scatter_add_rows(dy, mine_, d);
    Gradients gradients;
    gradients.put("table", as(table_, std::move(d)));
    return gradients;
  }

 private:
  Sharded<0> table_;         // (V/N, D)
  std::vector<Index> mine_;  // the tokens as rows of my slice
};

}  // namespace shard::layer_cuts
