#include "engine/workloads/decoder/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/basics/printable.hpp"
#include "engine/device/gathered.hpp"
#include "engine/layers/tokens/language_model.hpp"

namespace shard {

const Decoder& as_decoder(const Workload& workload) {
  const auto* made = dynamic_cast<const Decoder*>(&workload);
  if (made == nullptr) refuse(Code::internal, "decoder", "the workload decoder", workload.kind().name());
  return *made;
}

const WorkloadKind& Decoder::kind() const {
  return decoder(model_.is_mixture() ? usual_experts : 0);
}

double Decoder::parameter_elements() const {
  auto real = [](Index n) { return static_cast<double>(n); };
  const double attention =
      2 * real(model_.model_dim) * (real(model_.query_width()) + real(model_.key_width())) +
      (model_.has_bias ? real(model_.query_width()) + 2 * real(model_.key_width()) : 0);
  const double expert = 3 * real(model_.model_dim) * real(model_.hidden_dim);
  const double feed_forward =
      model_.is_mixture() ? real(model_.experts) * (expert + real(model_.model_dim)) : expert;
  return real(model_.num_blocks) * (attention + feed_forward + 2 * real(model_.model_dim)) +
         (model_.is_tied ? 1 : 2) * real(model_.vocabulary) * real(model_.model_dim) + real(model_.model_dim);
}

std::unique_ptr<GivenBatch> Decoder::given_batch(std::unique_ptr<Checkpoint> file, const InputHint&) const {
  return ids_and_labels(std::move(file), model_.vocabulary, model_.positions);
}

std::string Decoder::why_no_sequence(const std::vector<Index>& tokens, Index more) const {
  if (std::string why = why_no_tokens(tokens, model_.vocabulary); !why.empty()) return why;
  const auto length = static_cast<Index>(tokens.size());
  if (length + more <= model_.positions) return "";
  return fmt::format("expected a sequence of at most {} tokens, given {}{}", model_.positions, length,
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

void Decoder::open_data() {
  TextNetwork::open_data();
  pieces_of_text(*text_, {0, 0}, length_, 0, 0);  // throws for a text that is too short
}

std::unique_ptr<TrainingBatch> Decoder::batch(Index rows, std::uint64_t seed, Index step) const {
  auto pieces_of = [text = text_, length = length_, seed, step, ends = ends_with_sentence_](Range some) {
    HostTensor pieces = pieces_of_text(*text, some, length, seed, step);
    if (ends) end_with_sentence(*text, pieces);
    return pieces;
  };
  // Each device counts the labels of the whole batch, since its own rows may have more or fewer than others.
  const HostTensor all = pieces_of({0, rows});
  const Index labels = rows * length_ - std::ranges::count(all.values, static_cast<float>(Tokens::no_label));
  return std::make_unique<TextBatch>(pieces_of, std::max<Index>(labels, 1));
}

Examples Decoder::examples(ShardedEngine& engine, std::uint64_t seed) const {
  const Index begin = CounterRandom(seed, "example").integer(0, 0, static_cast<int>(text_->size() - length_));
  std::vector<Index> prompt;
  for (Index i = 0; i < std::min<Index>(length_, 24); ++i) prompt.push_back(text_->token(begin + i));
  std::vector<Index> tokens = prompt;
  for (Index token : generate_greedily(dynamic_cast<LanguageModel&>(engine), {prompt}, 48))
    tokens.push_back(token);
  std::string line;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i == prompt.size()) line += '|';
    line += shown(tokens[i]);
  }
  return {"a text, and how the network goes on with it", "    " + line + "\n"};
}

std::shared_ptr<const StepData> Decoder::choices(const ShardedEngine& engine) const {
  const auto* model = dynamic_cast<const LanguageModel*>(&engine);
  if (model == nullptr) return nullptr;
  return std::make_shared<ChosenExperts>(gathered_choices(*model, model_, length_));
}

std::vector<Index> ChosenExperts::counts() const {
  std::vector<Index> counts(of_block.size() * static_cast<std::size_t>(experts));
  for (std::size_t block = 0; block < of_block.size(); ++block)
    for (Index expert : of_block[block])
      ++counts[block * static_cast<std::size_t>(experts) + static_cast<std::size_t>(expert)];
  return counts;
}

ChosenExperts gathered_choices(const LanguageModel& engine, const DecoderModel& model, Index length) {
  std::vector<std::tuple<std::size_t, Index, std::vector<Index>>>
      mine;  // block, row and experts of each choice
  for (const LanguageModel::NotedChoice& c : engine.chosen_experts())
    mine.emplace_back(c.block, c.sequence * length + c.position, c.experts);
  ChosenExperts chosen(model.experts, model.top_k);
  for (const auto& theirs : gather_for_all(engine.group(), "experts of tokens", mine))
    for (const auto& [block, row, experts] : theirs) {
      chosen.of_block.resize(static_cast<std::size_t>(model.num_blocks));
      std::vector<Index>& of_block = chosen.of_block[block];
      const Index first = row * model.top_k;
      of_block.resize(std::max(of_block.size(), static_cast<std::size_t>(first + model.top_k)));
      std::ranges::copy(experts, of_block.begin() + first);
    }
  return chosen;
}

void Decoder::note(const ShardedEngine& engine, Journal& journal) const {
  const auto data = std::dynamic_pointer_cast<const ChosenExperts>(choices(engine));
  const std::vector<Index> chosen = data ? data->counts() : std::vector<Index>();
  if (chosen.empty()) return;
  const auto experts = static_cast<std::size_t>(model_.experts);
  RoutedCounts counts{1, 1, model_.experts, std::vector<Index>(experts), {}};
  for (std::size_t i = 0; i < chosen.size(); ++i) counts.chosen[i % experts] += chosen[i];
  counts.kept = counts.chosen;  // experts have no capacity, so none is dropped
  journal.add(counts, chosen);
}

}  // namespace shard
