#include "engine/workloads/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/layers/greedy.hpp"
#include "engine/loss.hpp"
#include "engine/printable.hpp"
#include "engine/workloads/decoder_options.hpp"
#include "engine/workloads/decoder_solution.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mistral.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard {

namespace {

/// \throws Error usage for sizes that make no network
void require_sizes(const DecoderModel& m) {
  auto refuse_option = [](const Option<Index>& of, const std::string& expected, Index given) {
    throw Error(Code::usage, fmt::format("{}: expected {}, given {}", of.name, expected, given));
  };
  if (m.heads % m.key_heads != 0)
    refuse_option(decoder_option().key_heads,
                  fmt::format("a number that divides the {} query heads", m.heads), m.key_heads);
  if (m.head_dim % 2 != 0)
    refuse_option(decoder_option().head_dim, "an even number, as positions turn pairs", m.head_dim);
  if (m.is_mixture() && m.top_k > m.experts)
    refuse_option(decoder_option().top_k, fmt::format("at most the {} experts", m.experts), m.top_k);
}

void set_hyper_parameters(DecoderModel& m, const Options& o) {
  m.top_k = m.is_mixture() ? o[decoder_option().top_k] : 0;
  if (o[decoder_option().window] > 0) m.window = o[decoder_option().window];
  m.rope_base = o[decoder_option().rope_base];
  m.epsilon = static_cast<float>(o[decoder_option().epsilon]);
  m.how = Arithmetic::real(m.head_dim);
  require_sizes(m);
}

class DecoderKind : public WorkloadKind {
 public:
  explicit DecoderKind(Index experts)
      : experts_(option_or_none("--experts", "Experts of each block; 0 for a plain feed-forward", experts)) {}

  std::string name() const override { return experts_.initial == "0" ? "decoder" : "mixture decoder"; }
  bool has_tokens() const override { return true; }
  TrainingDefaults training_defaults() const override { return {16, 100}; }
  std::string parameters_help() const override {
    return "safetensors file with embedding, block_0/query, ..., final_norm, head";
  }
  std::vector<OptionText> training_options() const override {
    const DecoderOptions& o = decoder_option();
    return {o.blocks, o.model_dim, o.heads, o.key_heads, o.hidden_dim, experts_, o.length};
  }
  std::shared_ptr<Workload> make(const Options& o) const override {
    DecoderModel m;
    m.vocabulary = Characters(o[decoder_option().data]).vocabulary();
    m.model_dim = o[decoder_option().model_dim];
    m.heads = o[decoder_option().heads];
    m.key_heads = o[decoder_option().key_heads];
    m.head_dim = o[decoder_option().head_dim];
    m.hidden_dim = o[decoder_option().hidden_dim];
    m.num_blocks = o[decoder_option().blocks];
    m.experts = o[experts_];
    set_hyper_parameters(m, o);
    return std::make_shared<Decoder>(m, o[decoder_option().length], o[decoder_option().data]);
  }
  bool deepen(Options& options, const Options& given) const override {
    if (given.has(decoder_option().blocks.name)) return false;
    options = options.with(decoder_option().blocks, options[decoder_option().blocks] + 1);
    return true;
  }
  std::vector<OptionText> options() const override {
    const DecoderOptions& o = decoder_option();
    return {o.head_dim, o.top_k, o.window, o.rope_base, o.epsilon, o.data};
  }
  /// What shapes do not tell is taken from the options.
  std::shared_ptr<Workload> read(const Checkpoint& checkpoint, const Options& o) const override {
    DecoderModel m = decoder_of(checkpoint, o[decoder_option().head_dim]);
    set_hyper_parameters(m, o);
    require_parameters(checkpoint, m.parameters(), "decoder");
    return std::make_shared<Decoder>(m, 1, o[decoder_option().data]);
  }
  ForeignNetwork network_of(const ForeignModel& model) const override {
    const DecoderModel m = mistral_model(model);
    return {std::make_shared<Decoder>(m, 1), mistral_names(m)};
  }
  std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const override {
    return std::make_shared<Decoder>(small(layers, model_dim, 2, 1, 2, hidden_dim, 11), 5);
  }

  std::vector<TestCase> cases(const Accepts& accepts) const override {
    DecoderModel windowed = small(2, 10, 6, 2, 2, 7, 13), mixture = small(2, 8, 4, 2, 4, 5, 7);
    windowed.window = 3, windowed.is_tied = true;
    mixture.experts = 5, mixture.top_k = 2;
    std::vector<TestCase> all;
    // With more blocks where there must be some for each device.
    auto add = [&](DecoderModel m, Index length, Index batch) {
      for (; m.num_blocks < 64; ++m.num_blocks) {
        auto made = std::make_shared<Decoder>(m, length);
        if (accepts(*made)) return all.push_back({made, batch});
      }
    };
    add(small(1, 6, 3, 3, 2, 5, 11), 5, 3);
    add(windowed, 7, 2);
    add(mixture, 3, 5);
    add(small(5, 12, 6, 3, 4, 9, 17), 11, 3);
    return all;
  }
  /// Without experts, unless only a mixture is accepted.
  TestCase streamed_case(const Accepts& accepts) const override {
    for (Index blocks = 2;; ++blocks)
      for (Index experts : {0, 5}) {
        DecoderModel m = small(blocks, 6, 2, 1, 2, 5, 11);
        m.experts = experts, m.top_k = experts > 0 ? 2 : 0;
        auto made = std::make_shared<Decoder>(m, 5);
        if (blocks == 64 || accepts(*made)) return {made, 11};
      }
  }
  /// Everything that is divided is a multiple of the devices, so that all slices are alike.
  std::vector<ExactProblem> live_problems(int devices, const Accepts& accepts) const override {
    std::vector<ExactProblem> all;
    const Index n = devices;
    for (Index experts : {Index{0}, n}) {
      DecoderModel m = small(n, 2 * n, n, n, 2, 2 * n, 4 * n);
      m.experts = experts, m.top_k = std::min<Index>(experts, 2);
      const Decoder made(m, 2 * n);
      if (accepts(made)) all.push_back(made.exact_problem(n, 3));
    }
    return all;
  }

 private:
  static DecoderModel small(Index blocks, Index model_dim, Index heads, Index key_heads, Index head_dim,
                            Index hidden_dim, Index vocabulary) {
    DecoderModel m;
    m.num_blocks = blocks, m.model_dim = model_dim, m.heads = heads, m.key_heads = key_heads;
    m.head_dim = head_dim, m.hidden_dim = hidden_dim, m.vocabulary = vocabulary;
    m.how = Arithmetic::real(head_dim);
    return m;
  }

  Option<Index> experts_;
};

/// Pieces of a text, and the mean loss of what follows each character.
class NextCharacters : public TrainingBatch {
 public:
  NextCharacters(const Characters& text, Index rows, Index length, std::uint64_t seed, Index step)
      : text_(text), length_(length), seed_(seed), step_(step), loss_(rows * length) {}

  Tensor input(Range rows) const override {
    const HostTensor pieces = pieces_of_text(text_, rows, length_, seed_, step_);
    return Tensor::from_host(pieces.shape, pieces.values);
  }
  Tensor loss_gradient(const Tensor& output, Index first_row) override {
    return loss_.gradient(output, first_row);
  }
  double loss(Communicator& group) const override { return loss_.value(group); }

 private:
  const Characters& text_;
  Index length_;
  std::uint64_t seed_;
  Index step_;
  MeanTokenLoss loss_;
};

/// Which experts tokens chose, in each step. An engine that does not note it has no entries.
class ExpertJournal : public Journal {
 public:
  explicit ExpertJournal(const Decoder& network) : network_(network) {}

  void add(const ShardedEngine& engine) override {
    const auto data = network_.step_data(engine);
    const std::vector<Index> chosen = dynamic_cast<const ChosenExperts&>(*data).of_all();
    if (std::ranges::max(chosen) == 0) return;
    const Index experts = network_.model().experts;
    RoutedCounts counts{1, 1, experts, std::vector<Index>(static_cast<std::size_t>(experts)), {}};
    for (std::size_t i = 0; i < chosen.size(); ++i) counts.chosen[i % counts.chosen.size()] += chosen[i];
    counts.kept = counts.chosen;  // no expert is ever full
    balance_.add(counts);
    decisions_.push_back(chosen);
  }
  std::vector<std::vector<Index>> decisions() const override { return decisions_; }
  std::string describe() const override { return decisions_.empty() ? "" : balance_.describe(); }

 private:
  const Decoder& network_;
  ExpertBalance balance_;
  std::vector<std::vector<Index>> decisions_;
};

}  // namespace

const WorkloadKind& decoder(Index experts) {
  static std::map<Index, DecoderKind> kinds;
  return kinds.try_emplace(experts, experts).first->second;
}

const Decoder& as_decoder(const Workload& workload) {
  const auto* made = dynamic_cast<const Decoder*>(&workload);
  if (made == nullptr) refuse(Code::internal, "decoder", "the workload decoder", workload.kind().name());
  return *made;
}

const WorkloadKind& Decoder::kind() const {
  return decoder();
}

double Decoder::parameter_elements() const {
  auto real = [](Index n) { return static_cast<double>(n); };
  const double attention =
      2 * real(model_.model_dim) * (real(model_.query_width()) + real(model_.key_width()));
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
  for (Index token : tokens)
    if (token < 0 || token >= model_.vocabulary)
      return fmt::format("expected tokens from 0 to {}, given {}", model_.vocabulary - 1, token);
  const auto length = static_cast<Index>(tokens.size());
  if (length + more <= model_.positions) return "";
  return fmt::format("expected a sequence of at most {} tokens, given {}{}", model_.positions, length,
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

Characters Decoder::characters() const {
  Characters text(data_);
  if (text.vocabulary() != model_.vocabulary)
    throw Error(Code::usage,
                fmt::format("--text: expected a network of {} tokens, the characters of {}, given {}",
                            text.vocabulary(), printable(data_, 120), model_.vocabulary));
  return text;
}

std::vector<Index> Decoder::tokens_of(const std::string& text) const {
  const Characters known = characters();
  std::vector<Index> tokens;
  for (char letter : text) {
    tokens.push_back(known.token_of(letter));
    if (tokens.back() == no_slot)
      throw Error(Code::usage, fmt::format("--text: expected characters of {}, given '{}'",
                                           printable(data_, 120), printable({&letter, 1})));
  }
  return tokens;
}

std::string Decoder::text_of(const std::vector<Index>& tokens) const {
  const Characters known = characters();
  std::string text;
  for (Index token : tokens) text += known.letter(token);
  return text;
}

void Decoder::open_data() {
  text_ = std::make_shared<const Characters>(data_);
}

std::unique_ptr<TrainingBatch> Decoder::batch(Index rows, std::uint64_t seed, Index step) const {
  return std::make_unique<NextCharacters>(*text_, rows, length_, seed, step);
}

std::string Decoder::examples(ShardedEngine& engine, std::uint64_t seed) const {
  const Index begin = CounterRandom(seed, "example").integer(0, 0, static_cast<int>(text_->size() - length_));
  std::vector<Index> prompt;
  for (Index i = 0; i < std::min<Index>(length_, 24); ++i) prompt.push_back(text_->token(begin + i));
  std::vector<Index> tokens = prompt;
  for (Index token : generate_greedily(dynamic_cast<LanguageModel&>(engine), prompt, 48))
    tokens.push_back(token);
  std::string line;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i == prompt.size()) line += '|';
    const char letter = text_->letter(tokens[i]);
    line += letter == '\n' ? ' ' : letter;
  }
  return "    " + line + "\n";
}

HostTensor Decoder::random_input(Index batch, std::uint64_t seed) const {
  HostTensor input{input_shape(batch), {}};
  const CounterRandom ids(seed, "ids"), missing(seed, "missing labels");
  for (Index i = 0; i < num_elements(input.shape); ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const bool is_label = i % (2 * length_) >= length_;
    const int token = ids.integer(at, 0, static_cast<int>(model_.vocabulary - 1));
    input.values.push_back(is_label && missing.integer(at, 0, 9) == 0 ? float{Tokens::no_label}
                                                                      : static_cast<float>(token));
  }
  return input;
}

ExactProblem Decoder::exact_problem(Index batch, std::uint64_t seed) const {
  constexpr Index longest = 11;
  DecoderModel model = model_;
  model.how = exact::grid_of(model.model_dim, model.head_dim);
  auto network = std::make_shared<Decoder>(model, std::min(length_, longest), data_);
  network->text_ = text_;
  ExactProblem problem{network, network->random_input(batch, seed), {}, {}};
  problem.output_grad =
      exact::integers(network->output_shape(batch), CounterRandom(seed, "exact output gradient"), -4, 4, 8);
  problem.weights = exact::transformer_weights(parameters(), seed);
  return problem;
}

Solution Decoder::solve(const ExactProblem& problem) const {
  return solve_decoder(model_, problem);
}

std::vector<Index> ChosenExperts::of_all() const {
  std::vector<Index> sums(of_device.front().size());
  for (const std::vector<Index>& counts : of_device)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += counts[i];
  return sums;
}

std::shared_ptr<const StepData> Decoder::step_data(const ShardedEngine& engine) const {
  const auto* noted = dynamic_cast<const LanguageModel*>(&engine);
  if (!model_.is_mixture() || noted == nullptr) return nullptr;
  ChosenExperts chosen;
  chosen.experts = model_.experts;
  chosen.of_device.resize(static_cast<std::size_t>(engine.num_devices()));
  std::vector<Index> mine = noted->chosen_experts();
  mine.resize(static_cast<std::size_t>(model_.num_blocks * model_.experts));
  for (Index count : mine) {
    const std::vector<Index> of_all = engine.group().exchange("tokens of an expert", count);
    for (std::size_t d = 0; d < of_all.size(); ++d) chosen.of_device[d].push_back(of_all[d]);
  }
  if (engine.input_layout() != Placement::sharded(0)) chosen.of_device = {chosen.of_all()};
  return std::make_shared<ChosenExperts>(chosen);
}

std::shared_ptr<const StepData> Decoder::step_data(const ExactProblem& problem, int devices) const {
  if (!model_.is_mixture()) return nullptr;
  ChosenExperts chosen;
  chosen.experts = model_.experts;
  chosen.of_device = chosen_experts(model_, problem, devices);
  return std::make_shared<ChosenExperts>(chosen);
}

std::unique_ptr<Journal> Decoder::journal() const {
  return model_.is_mixture() ? std::make_unique<ExpertJournal>(*this) : nullptr;
}

float Decoder::gradient_unit() const {
  return model_.how.unit * model_.how.unit * std::min(model_.how.unit, model_.how.logit_scale);
}

}  // namespace shard
