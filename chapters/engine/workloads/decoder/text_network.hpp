#pragma once

#include <fmt/format.h>

#include "engine/engines/loss.hpp"
#include "engine/proof/exact.hpp"
#include "engine/workloads/data/characters.hpp"
#include "engine/workloads/decoder/options.hpp"
#include "engine/workloads/exact_values.hpp"

namespace shard {

/// Rows of tokens with their labels, and the mean loss of the tokens with a label.
class TextBatch : public TrainingBatch {
 public:
  /// `labelled`: the number of such tokens in the batch.
  TextBatch(std::function<HostTensor(Range rows)> rows, Index labelled)
      : rows_(std::move(rows)), loss_(labelled) {}

  Tensor input(Range rows) const override {
    const HostTensor some = rows_(rows);
    return Tensor::from_host(some.shape, some.values);
  }
  Tensor loss_gradient(const Tensor& losses, Index first_row) override {
    return loss_.gradient(losses, first_row);
  }
  double loss(Communicator& group) const override { return loss_.value(group); }

 private:
  std::function<HostTensor(Range)> rows_;
  MeanTokenLoss loss_;
};

/// A language model that learns the characters of a text: what decoders and encoder-decoders share. Model has
/// its sizes. The output is the loss of each token, (B · S, 1).
template <class Model>
class TextNetwork : public Workload, public TokenNetwork {
 public:
  /// Sequences have `length` tokens.
  TextNetwork(const Model& model, Index length, const std::string& data)
      : model_(model), length_(length), data_(data) {}

  const Model& model() const { return model_; }
  Index length() const { return length_; }

  std::string describe() const override { return model_.describe(); }
  std::string describe_batch(Index batch) const override {
    return fmt::format("batch {} of length {}", batch, length_);
  }
  std::vector<Parameter> parameters() const override { return model_.parameters(); }
  Shape output_shape(Index batch) const override { return {batch * length_, 1}; }
  std::vector<Index> tokens_of(const std::string& text) const override {
    return Characters(data_, model_.vocabulary).tokens_of(text);
  }
  std::string text_of(const std::vector<Index>& tokens) const override {
    return Characters(data_, model_.vocabulary).text_of(tokens);
  }
  void open_data() override { text_ = std::make_shared<const Characters>(data_); }
  std::string yardstick() const override {
    return fmt::format("always answering with each character's share of the text has a loss of {:.3f}",
                       text_->entropy());
  }

  /// The network on the grid (arithmetic.hpp). Weights are integers −2..2. Output gradients are multiples of
  /// 16 up to 64, so that few gradients round to 0. About one label in ten is missing.
  ExactProblem exact_problem(Index batch, std::uint64_t seed) const override {
    exact::require_hidden_dim(model_.hidden_dim, Index{1} << 16);
    Model model = model_;
    model.how = exact::grid_of(model.model_dim, model.head_dim);
    const std::shared_ptr<TextNetwork> network = of(model, 11);
    network->text_ = text_;
    return exact::transformer_problem(network, batch, seed);
  }
  float gradient_unit() const override {
    return exact::gradient_unit(model_.how, model_.model_dim, model_.head_dim);
  }
  HostTensor random_input(Index batch, std::uint64_t seed) const override {
    return exact::random_tokens(input_shape(batch), length_, model_.vocabulary, seed);
  }

 protected:
  /// The same network of this model, with sequences of at most this length.
  virtual std::shared_ptr<TextNetwork> of(const Model& model, Index longest) const = 0;
  char shown(Index token) const { return text_->letter(token) == '\n' ? ' ' : text_->letter(token); }

  Model model_;
  Index length_;
  std::string data_;
  std::shared_ptr<const Characters> text_;
};

/// The kind of such networks.
class TextKind : public WorkloadKind {
 public:
  bool has_tokens() const override { return true; }
  bool has_foreign_networks() const override { return true; }
  TrainingDefaults training_defaults() const override { return {8, 20}; }
  bool deepen(Options& options, const Options& given) const override {
    const Option<Index>& blocks = decoder_option().blocks;
    if (given.has(blocks.name)) return false;
    options = options.with(blocks, options[blocks] + 1);
    return true;
  }
};

}  // namespace shard
