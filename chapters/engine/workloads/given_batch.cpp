#include "engine/workloads/given_batch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/engines/loss.hpp"
#include "engine/layers/tokens/language_model.hpp"
#include "engine/workloads/mlp/model.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

void MatrixPieces::add(const Tensor& piece, const std::vector<Index>& rows, Index first_column) {
  const std::vector<float> values = piece.to_host();
  std::vector<Index> header = {piece.extent(0), piece.extent(1), first_column};
  header.insert(header.end(), rows.begin(), rows.end());
  bytes_.append(reinterpret_cast<const char*>(header.data()), header.size() * sizeof(Index));
  bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

void MatrixPieces::add(const Tensor& piece, Index first_row) {
  std::vector<Index> rows(static_cast<std::size_t>(piece.extent(0)));
  std::iota(rows.begin(), rows.end(), first_row);
  add(piece, rows);
}

namespace {

/// Copies `count` numbers from bytes, and moves the position behind them.
template <class Number>
std::vector<Number> take(const std::string& bytes, std::size_t& at, Index count) {
  std::vector<Number> numbers(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(numbers.data(), bytes.data() + at, numbers.size() * sizeof(Number));
  at += numbers.size() * sizeof(Number);
  return numbers;
}

}  // namespace

HostTensor MatrixPieces::gather(Communicator& group, const Shape& shape, Index columns) const {
  HostTensor whole{shape, std::vector<float>(static_cast<std::size_t>(num_elements(shape)))};
  for (const std::string& theirs : group.gather("results", bytes_))
    for (std::size_t at = 0; at < theirs.size();) {
      const std::vector<Index> header = take<Index>(theirs, at, 3);
      const std::vector<Index> rows = take<Index>(theirs, at, header[0]);
      const std::vector<float> values = take<float>(theirs, at, header[0] * header[1]);
      for (Index i = 0; i < header[0]; ++i)
        std::copy_n(values.begin() + i * header[1], header[1],
                    whole.values.begin() + rows[static_cast<std::size_t>(i)] * columns + header[2]);
    }
  return whole;
}

namespace {

Tensor read_rows(const Checkpoint& file, const std::string& name, Range rows) {
  Tensor t = file.slice(name, 0, rows.begin, rows.end);
  t.charge_to(Purpose::activations);
  return t;
}

class InputAndOutputGrad : public GivenBatch {
 public:
  InputAndOutputGrad(std::unique_ptr<Checkpoint> file, const Workload& network, const InputHint& hint)
      : file_(std::move(file)) {
    const Shape input = file_->shape("input");
    rows_ = input.empty() ? 0 : input[0];
    output_ = network.output_shape(rows_);
    require("input", network.input_shape(rows_), input.size() == 2 ? hint(input[1]) : "");
    require("output_grad", output_, "");
  }

  Index rows() const override { return rows_; }
  Tensor input(Range rows) const override { return read_rows(*file_, "input", rows); }
  Tensor output_grad(const Tensor& output, Index first_row) override {
    pieces_.add(output, first_row);
    return read_rows(*file_, "output_grad", {first_row, first_row + output.extent(0)});
  }
  std::map<std::string, HostTensor> results(Communicator& group) const override {
    return {{"output", pieces_.gather(group, output_, output_[1])}};
  }

 private:
  void require(const char* name, const Shape& expected, const std::string& hint) const {
    const Shape given = file_->shape(name);
    if (given != expected)
      refuse_parameter(*file_, name, to_string(expected),
                       to_string(given) + (hint.empty() ? "" : fmt::format(" ({})", hint)));
  }

  std::unique_ptr<Checkpoint> file_;
  Index rows_ = 0;
  Shape output_;
  MatrixPieces pieces_;
};

class IdsAndLabels : public GivenBatch {
 public:
  /// With sources, which an encoder reads, the tokens whose logits are computed are `decoder_input_ids`.
  IdsAndLabels(std::unique_ptr<Checkpoint> file, Index vocabulary, Index positions, bool has_sources)
      : file_(std::move(file)), vocabulary_(vocabulary) {
    const char* ids = has_sources ? "decoder_input_ids" : "input_ids";
    shape_ = shape_of_ids(ids);
    require_used({ids, "input_ids", "labels"});
    if (!file_->contains("labels"))
      refuse("labels", fmt::format("{}, as {}: the token that follows each", to_string(shape_), ids), "none");
    if (file_->shape("labels") != shape_)
      refuse("labels", fmt::format("{}, as {}", to_string(shape_), ids), to_string(file_->shape("labels")));
    if (shape_[1] > positions)
      refuse(ids, fmt::format("sequences of at most {} tokens", positions), to_string(shape_));
    ids_ = tokens(ids, false);
    labels_ = tokens("labels", true);
    const auto labelled = static_cast<Index>(labels_.size()) -
                          std::ranges::count(labels_, static_cast<float>(Tokens::no_label));
    if (labelled == 0) refuse("labels", "a label", "-100 alone");
    loss_ = MeanTokenLoss(labelled);
    if (!has_sources) return;
    const Shape sources = shape_of_ids("input_ids");
    source_length_ = sources[1];
    sources_ = tokens("input_ids", false);
    if (sources[0] != rows())
      refuse("input_ids", fmt::format("{} sequences, as decoder_input_ids", rows()), to_string(sources));
  }

  Index rows() const override { return shape_[0]; }

  Tensor input(Range rows) const override {
    std::vector<float> values;
    auto add = [&](const std::vector<float>& numbers, Index b, Index length) {
      values.insert(values.end(), numbers.begin() + b * length, numbers.begin() + (b + 1) * length);
    };
    for (Index b = rows.begin; b < rows.end; ++b) {
      if (source_length_ > 0) values.push_back(static_cast<float>(source_length_));
      add(sources_, b, source_length_);
      add(ids_, b, shape_[1]);
      add(labels_, b, shape_[1]);
    }
    const Index width = (source_length_ > 0 ? 1 + source_length_ : 0) + 2 * shape_[1];
    return Tensor::from_host({rows.size(), width}, values);
  }

  void watch(ShardedEngine& engine) override {
    dynamic_cast<LanguageModel&>(engine).see_logits(
        [this](const Tensor& logits, const Tokens& tokens, Index first_column) {
          std::vector<Index> rows;
          for (Index s = 0; s < tokens.sequences; ++s)
            for (Index at : tokens.positions) rows.push_back((tokens.first_sequence + s) * shape_[1] + at);
          logits_.add(logits, rows, first_column);
        });
  }

  Tensor output_grad(const Tensor& losses, Index first_row) override {
    return loss_.gradient(losses, first_row);
  }

  std::map<std::string, HostTensor> results(Communicator& group) const override {
    return {{"logits", logits_.gather(group, {shape_[0], shape_[1], vocabulary_}, vocabulary_)},
            {"loss", {{}, {static_cast<float>(loss_.value(group))}}}};
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& expected,
                           const std::string& given) const {
    refuse_parameter(*file_, name, expected, given);
  }

  /// Refuses tensors that would change results and are not read. A mask of ones (of tokenizers) is harmless.
  void require_used(const std::set<std::string>& used) const {
    for (const std::string& name : file_->names()) {
      if (used.contains(name)) continue;
      if (name != "attention_mask" && name != "decoder_attention_mask")
        refuse(printable(name, 60), fmt::format("{} alone, and masks of ones", fmt::join(used, ", ")),
               "another tensor");
      const std::vector<float> values = file_->read(name, all_of(file_->shape(name)));
      const auto found = std::ranges::find_if(values, [](float value) { return value != 1; });
      if (found != values.end())
        refuse(
            name, "ones alone, as no token is masked here",
            fmt::format("{} at {}", *found, to_string(place_of(found - values.begin(), file_->shape(name)))));
    }
  }

  Shape shape_of_ids(const char* name) const {
    Shape shape = file_->shape(name);
    if (shape.size() != 2 || shape[1] == 0) refuse(name, "sequences of ids, (B, S)", to_string(shape));
    return shape;
  }

  std::vector<float> tokens(const char* name, bool may_be_none) const {
    const Shape shape = file_->shape(name);
    std::vector<float> numbers = file_->read(name, 0, 0, shape[0]);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const float number = numbers[i];
      const bool is_none = may_be_none && number == static_cast<float>(Tokens::no_label);
      const bool is_token =
          number >= 0 && number < static_cast<float>(vocabulary_) && number == std::trunc(number);
      if (!is_none && !is_token)
        refuse(name,
               fmt::format("tokens from 0 to {}{}", vocabulary_ - 1, may_be_none ? ", or -100 for none" : ""),
               fmt::format("{} at {}", number, to_string(place_of(static_cast<Index>(i), shape))));
    }
    return numbers;
  }

  std::unique_ptr<Checkpoint> file_;
  Index vocabulary_;
  Shape shape_;                      // (B, S)
  std::vector<float> ids_, labels_;  // (B · S)
  Index source_length_ = 0;          // n; 0 without sources
  std::vector<float> sources_;       // (B · n)
  MeanTokenLoss loss_ = MeanTokenLoss(1);
  MatrixPieces logits_;
};

}  // namespace

std::unique_ptr<GivenBatch> input_and_output_grad(std::unique_ptr<Checkpoint> file, const Workload& network,
                                                  const InputHint& hint) {
  return std::make_unique<InputAndOutputGrad>(std::move(file), network, hint);
}

std::unique_ptr<GivenBatch> ids_and_labels(std::unique_ptr<Checkpoint> file, Index vocabulary,
                                           Index positions) {
  return std::make_unique<IdsAndLabels>(std::move(file), vocabulary, positions, false);
}

std::unique_ptr<GivenBatch> sources_and_targets(std::unique_ptr<Checkpoint> file, Index vocabulary) {
  return std::make_unique<IdsAndLabels>(std::move(file), vocabulary, std::numeric_limits<Index>::max(), true);
}

}  // namespace shard
