#include "engine/workloads/t5/t5.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/layers/tokens/language_model.hpp"

namespace shard {

const T5& as_t5(const Workload& workload) {
  const auto* made = dynamic_cast<const T5*>(&workload);
  if (made == nullptr) refuse(Code::internal, "t5", "the workload t5", workload.kind().name());
  return *made;
}

const WorkloadKind& T5::kind() const {
  return t5();
}

double T5::parameter_elements() const {
  auto real = [](Index n) { return static_cast<double>(n); };
  const double D = real(model_.model_dim), attention = 4 * D * real(model_.heads) * real(model_.head_dim) + D;
  const double feed_forward = (model_.has_gate() ? 3 : 2) * D * real(model_.hidden_dim) + D;
  const double blocks = real(model_.encoder_blocks) * (attention + feed_forward) +
                        real(model_.decoder_blocks) * (2 * attention + feed_forward);
  return blocks + (model_.is_tied ? 1 : 2) * real(model_.vocabulary) * D +
         2 * (real(model_.buckets) * real(model_.heads) + D);
}

std::unique_ptr<GivenBatch> T5::given_batch(std::unique_ptr<Checkpoint> file, const InputHint&) const {
  return sources_and_targets(std::move(file), model_.vocabulary);
}

std::unique_ptr<TrainingBatch> T5::batch(Index rows, std::uint64_t seed, Index step) const {
  auto pieces_of = [text = text_, n = source_length_, length = length_, seed, step](Range some) {
    const Index width = n + length - 1;  // the last id of a source begins its target
    const HostTensor pieces = pieces_of_text(*text, some, width, seed, step);
    HostTensor all{{some.size(), 1 + n + 2 * length}, {}};
    for (auto row = pieces.values.begin(); row != pieces.values.end(); row += 2 * width) {
      all.values.push_back(static_cast<float>(n));
      all.values.insert(all.values.end(), row, row + n);
      all.values.insert(all.values.end(), row + n - 1, row + width);
      all.values.insert(all.values.end(), row + width + n - 1, row + 2 * width);
    }
    return all;
  };
  return std::make_unique<TextBatch>(pieces_of, rows * length_);
}

Examples T5::examples(ShardedEngine& engine, std::uint64_t seed) const {
  InferenceMode no_tape;
  auto& model = dynamic_cast<LanguageModel&>(engine);
  MatrixPieces pieces;
  model.see_logits([&](const Tensor& z, const Tokens& t, Index column) {
    pieces.add(z, std::vector<Index>(t.positions.begin(), t.positions.end()), column);
  });
  const std::unique_ptr<TrainingBatch> example = batch(1, seed, 0);  // training steps begin at 1
  engine.forward(example->input(engine.input_rows(1)));
  model.see_logits({});
  const HostTensor logits = pieces.gather(engine.group(), {length_, model_.vocabulary}, model_.vocabulary);
  const std::vector<float> row = example->input({0, 1}).to_host();
  std::string source, target, said;
  for (Index i = 0; i < source_length_; ++i)
    source += shown(static_cast<Index>(row[static_cast<std::size_t>(1 + i)]));
  for (Index i = 0; i < length_; ++i) {
    target += shown(static_cast<Index>(row[static_cast<std::size_t>(1 + source_length_ + length_ + i)]));
    const auto first = logits.values.begin() + i * model_.vocabulary;
    said += shown(std::max_element(first, first + model_.vocabulary) - first);
  }
  return {"a source, its target, and what the network says for each character of the target",
          fmt::format("    {}|{}\n    {}|{}\n", source, target, std::string(source.size(), ' '), said)};
}

HostTensor T5::random_input(Index batch, std::uint64_t seed) const {
  HostTensor input = TextNetwork::random_input(batch, seed);
  for (std::size_t i = 0; i < input.values.size(); i += static_cast<std::size_t>(input.shape[1]))
    input.values[i] = static_cast<float>(source_length_);
  return input;
}

}  // namespace shard
