#include "engine/workloads/decoder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "engine/layers/greedy.hpp"
#include "engine/loss.hpp"
#include "engine/printable.hpp"
#include "engine/workloads/decoder_solution.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mistral.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard {

namespace {

/// A number of which 0 means none.
Option<Index> option_or_none(const std::string& name, const std::string& help, Index initial = 0) {
  Option<Index> option(name, initial, help);
  option.expected = "a whole number from 0 to 2^30";
  option.accepts = [](const std::string& text) {
    return is_number(text, [](Index n) { return n >= 0 && n <= Index{1} << 30; });
  };
  return option;
}

/// Options are made when they are asked for: kinds are made before other files' globals.
struct DecoderOptions {
  Option<Index> blocks{"--blocks", 4, "Blocks of attention and a feed-forward"};
  Option<Index> model_dim{"--model-dim", 48, "Width of the residual stream"};
  Option<Index> heads{"--heads", 6, "Query heads"};
  Option<Index> key_heads{"--key-heads", 3, "Key-value heads; query heads share them evenly"};
  Option<Index> head_dim{"--head-dim", 8, "Width of a head; an even number"};
  Option<Index> hidden_dim{"--hidden-dim", 96, "Width of the feed-forward, or of each expert"};
  Option<Index> top_k{"--top-k", 2, "Experts of each token"};
  Option<Index> window = option_or_none("--window", "Tokens that a token sees, itself included; 0 for all");
  Option<double> rope_base{"--rope-base", 10000, "Base of the rotary angles"};
  Option<double> epsilon{"--epsilon", 1e-5, "What norms add to the mean square"};
  Option<Index> length{"--length", 16, "Tokens of each sequence"};
  Option<std::string> data = [] {
    Option<std::string> option("--data", Characters::default_path(),
                               "The text to learn; its characters are the tokens");
    option.type = "FILE";
    return option;
  }();
};
const DecoderOptions& option() {
  static const DecoderOptions options;
  return options;
}

/// \throws Error usage for sizes that make no network
void require_sizes(const DecoderModel& m) {
  auto refuse_option = [](const Option<Index>& of, const std::string& expected, Index given) {
    throw Error(Code::usage, fmt::format("{}: expected {}, given {}", of.name, expected, given));
  };
  if (m.heads % m.key_heads != 0)
    refuse_option(option().key_heads, fmt::format("a number that divides the {} query heads", m.heads),
                  m.key_heads);
  if (m.head_dim % 2 != 0)
    refuse_option(option().head_dim, "an even number, as positions turn pairs", m.head_dim);
  if (m.is_mixture() && m.top_k > m.experts)
    refuse_option(option().top_k, fmt::format("at most the {} experts", m.experts), m.top_k);
}

void set_hyper_parameters(DecoderModel& m, const Options& o) {
  m.top_k = m.is_mixture() ? o[option().top_k] : 0;
  if (o[option().window] > 0) m.window = o[option().window];
  m.rope_base = o[option().rope_base];
  m.epsilon = static_cast<float>(o[option().epsilon]);
  m.how = Arithmetic::real(m.head_dim);
  require_sizes(m);
}

class DecoderKind : public WorkloadKind {
 public:
  explicit DecoderKind(Index experts)
      : experts_(option_or_none("--experts", "Experts of each block; 0 for a plain feed-forward", experts)) {}

  std::string name() const override { return experts_.initial == "0" ? "decoder" : "mixture decoder"; }
  bool has_tokens() const override { return true; }
  TrainingDefaults training_defaults() const override { return {8, 20}; }
  std::string parameters_help() const override {
    return "safetensors file with embedding, block_0/query, ..., final_norm, head";
  }
  std::vector<OptionText> training_options() const override {
    const DecoderOptions& o = option();
    return {o.blocks, o.model_dim, o.heads, o.key_heads, o.hidden_dim, experts_, o.length};
  }
  std::shared_ptr<Workload> make(const Options& o) const override {
    DecoderModel m;
    m.vocabulary = Characters(o[option().data]).vocabulary();
    m.model_dim = o[option().model_dim];
    m.heads = o[option().heads];
    m.key_heads = o[option().key_heads];
    m.head_dim = o[option().head_dim];
    m.hidden_dim = o[option().hidden_dim];
    m.num_blocks = o[option().blocks];
    m.experts = o[experts_];
    set_hyper_parameters(m, o);
    return std::make_shared<Decoder>(m, o[option().length], o[option().data]);
  }
  bool deepen(Options& options, const Options& given) const override {
    if (given.has(option().blocks.name)) return false;
    options = options.with(option().blocks, options[option().blocks] + 1);
    return true;
  }
  std::vector<OptionText> options() const override {
    const DecoderOptions& o = option();
    return {o.head_dim, o.top_k, o.window, o.rope_base, o.epsilon, o.data};
  }
  /// What shapes do not tell is taken from the options.
  std::shared_ptr<Workload> read(const Checkpoint& checkpoint, const Options& o) const override {
    DecoderModel m = decoder_of(checkpoint, o[option().head_dim]);
    set_hyper_parameters(m, o);
    require_parameters(checkpoint, m.parameters());
    return std::make_shared<Decoder>(m, 1, o[option().data]);
  }
  bool has_foreign_networks() const override { return true; }
  ForeignNetwork network_of(const ForeignModel& model) const override {
    const DecoderModel m = mistral_model(model);
    return {std::make_shared<Decoder>(m, 1), mistral_names(m)};
  }
  std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const override {
    DecoderModel m = small(layers, model_dim, 2, 1, 2, hidden_dim, 11);
    m.experts = Options()[experts_], m.top_k = m.is_mixture() ? 2 : 0;
    return std::make_shared<Decoder>(m, 5);
  }

  std::vector<TestCase> cases(const Accepts& accepts) const override {
    DecoderModel windowed = small(2, 10, 6, 2, 2, 7, 13), mixture = small(2, 8, 4, 2, 4, 5, 7);
    windowed.window = 3, windowed.is_tied = true;
    mixture.experts = 5, mixture.top_k = 2;
    std::vector<TestCase> all;
    // With more blocks where there must be some for each device.
    auto add = [&](DecoderModel m, Index length, Index batch) {
      for (; m.num_blocks < 64; ++m.num_blocks) {
        const auto made = only_one(m, length);
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
  /// Everything that is divided is a multiple of the devices, so that all slices are alike. As few blocks as a
  /// variant accepts: each one is so many faults more.
  std::vector<ExactProblem> live_problems(int devices, const Accepts& accepts) const override {
    std::vector<ExactProblem> all;
    const Index n = devices;
    for (bool is_mixture : {false, true}) {
      DecoderModel m = small(1, 2 * n, n, n, 2, 2 * n, 4 * n);
      if (is_mixture) m.experts = n > 2 ? n : 2 * n, m.top_k = 2;
      while (m.num_blocks < n && !accepts(Decoder(m, 2 * n))) ++m.num_blocks;
      if (const Decoder made(m, 2 * n); accepts(made)) all.push_back(live_problem(made, devices));
    }
    return all;
  }

 private:
  /// The same network each time, so that tests compute only once what they must know of it.
  static std::shared_ptr<const Decoder> only_one(const DecoderModel& m, Index length) {
    static std::map<std::string, std::shared_ptr<const Decoder>> all;
    auto& made = all[fmt::format("{}, {}, {}, {}", m.describe(), m.window.value_or(0), m.is_tied, length)];
    if (!made) made = std::make_shared<Decoder>(m, length);
    return made;
  }
  /// Each sequence has the first token of every slice of the vocabulary, and each token a label and a gradient.
  static ExactProblem live_problem(const Decoder& network, int devices) {
    const Index slice = network.model().vocabulary / devices;
    constexpr std::uint64_t first_seed = 9;  // with some others, more than 10 % of a gradient are 0
    for (std::uint64_t seed = first_seed;; ++seed) {
      ExactProblem problem = network.exact_problem(devices, seed);
      for (Index i = 0; i < num_elements(problem.input.shape); ++i) {
        float& value = problem.input.values[static_cast<std::size_t>(i)];
        const bool is_id = i % (2 * network.length()) < network.length();
        if ((is_id && i % 2 == 0) || value == Tokens::no_label)
          value = static_cast<float>(i / 2 % devices * slice);
      }
      for (float& value : problem.output_grad.values)
        if (value == 0) value = 16;
      if (!network.model().is_mixture() || is_live(problem, devices)) return problem;
    }
  }
  /// Whether, in each block, every expert has tokens of every device, and two devices have other numbers of
  /// tokens for each other: with the same ones, it would not matter whether they tell one another.
  static bool is_live(const ExactProblem& problem, int devices) {
    const DecoderModel& m = as_decoder(*problem.workload).model();
    for (const std::vector<Index>& chosen : chosen_experts(m, problem)) {  // one sequence for each device
      std::vector<std::vector<Index>> tokens(static_cast<std::size_t>(devices));  // of each, for each device
      std::set<std::pair<std::size_t, Index>> used;                               // device and expert
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        const std::size_t device = i / (chosen.size() / tokens.size());
        std::vector<Index>& of_device = tokens[device];
        of_device.resize(tokens.size());
        ++of_device[static_cast<std::size_t>(part_with(m.experts, devices, chosen[i]))];
        used.emplace(device, chosen[i]);
      }
      bool is_even = true;
      for (std::size_t i = 0; i < tokens.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) is_even = is_even && tokens[i][j] == tokens[j][i];
      if (is_even || static_cast<Index>(used.size()) < devices * m.experts) return false;
    }
    return true;
  }
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
    if (chosen.empty()) return;
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

/// Arithmetic on a grid that fits networks of these sizes with weights −2..2: scores and logits are scaled to
/// a few units, by a power of two.
Arithmetic grid_of(const DecoderModel& m) {
  auto power = [](double size) { return static_cast<float>(std::exp2(-std::round(std::log2(size)))); };
  const double of_product = std::sqrt(5 * static_cast<double>(m.model_dim));  // x̂ w W, w and W of −2..2
  Arithmetic how;
  how.unit = 0x1p-3F, how.limit = 64, how.base = ExponentialBase::two;
  how.score_scale = power(of_product * of_product * std::sqrt(static_cast<double>(m.head_dim)) / 2);
  how.logit_scale = power(of_product / 2);
  return how;
}

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
  return decoder(model_.is_mixture() ? 7 : 0);
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
  pieces_of_text(*text_, {0, 0}, length_, 0, 0);  // throws for a text that is too short
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
  model.how = grid_of(model);
  auto network = std::make_shared<Decoder>(model, std::min(length_, longest), data_);
  network->text_ = text_;
  ExactProblem problem{network, network->random_input(batch, seed), {}, {}};
  problem.output_grad =
      exact::integers(network->output_shape(batch), CounterRandom(seed, "exact output gradient"), -4, 4, 16);
  for (const Parameter& p : parameters()) {
    HostTensor& w = problem.weights[p.name] =
        exact::integers(p.shape, CounterRandom(seed, "exact " + p.name), -2, 2);
    for (float& value : w.values)
      if (p.shape.size() == 1 && value == 0)
        value = 1;  // a norm's: with 0, weights behind it have no gradient
  }
  return problem;
}

Solution Decoder::solve(const ExactProblem& problem) const {
  return solve_decoder(model_, problem);
}

std::vector<Index> ChosenExperts::counts(Index block, const std::vector<Index>& rows) const {
  const std::vector<Index>& chosen = of_block[static_cast<std::size_t>(block)];
  std::vector<Index> counts(static_cast<std::size_t>(experts));
  for (Index row : rows)
    for (Index r = 0; r < top_k; ++r)
      ++counts[static_cast<std::size_t>(chosen[static_cast<std::size_t>(row * top_k + r)])];
  return counts;
}

std::vector<Index> ChosenExperts::counts(Index block, Range rows) const {
  std::vector<Index> all(static_cast<std::size_t>(rows.size()));
  std::iota(all.begin(), all.end(), rows.begin);
  return counts(block, all);
}

std::vector<Index> ChosenExperts::of_all() const {
  std::vector<Index> all;
  for (std::size_t block = 0; block < of_block.size(); ++block) {
    const Index rows = static_cast<Index>(of_block[block].size()) / top_k;
    std::ranges::copy(counts(static_cast<Index>(block), Range{0, rows}), std::back_inserter(all));
  }
  return all;
}

std::shared_ptr<const StepData> Decoder::step_data(const ShardedEngine& engine) const {
  const auto* noted = dynamic_cast<const LanguageModel*>(&engine);
  if (!model_.is_mixture() || noted == nullptr) return nullptr;
  std::string mine;  // block, row and experts of each choice
  for (const LanguageModel::NotedChoice& c : noted->chosen_experts())
    mine += fmt::format("{} {} {} ", c.block, c.sequence * length_ + c.position, fmt::join(c.experts, " "));
  ChosenExperts chosen(model_.experts, model_.top_k);
  for (const std::string& theirs : engine.group().gather_for_all("experts of tokens", mine)) {
    std::istringstream numbers(theirs);
    for (std::size_t block = 0, row = 0; numbers >> block >> row;) {
      chosen.of_block.resize(static_cast<std::size_t>(model_.num_blocks));
      std::vector<Index>& of_block = chosen.of_block[block];
      const std::size_t k = static_cast<std::size_t>(model_.top_k), first = row * k;
      of_block.resize(std::max(of_block.size(), first + k));
      for (std::size_t r = 0; r < k; ++r) numbers >> of_block[first + r];
    }
  }
  return std::make_shared<ChosenExperts>(std::move(chosen));
}

std::shared_ptr<const StepData> Decoder::step_data(const ExactProblem& problem, int) const {
  if (!model_.is_mixture()) return nullptr;
  ChosenExperts chosen(model_.experts, model_.top_k);
  chosen.of_block = chosen_experts(model_, problem);
  return std::make_shared<ChosenExperts>(std::move(chosen));
}

std::unique_ptr<Journal> Decoder::journal() const {
  return model_.is_mixture() ? std::make_unique<ExpertJournal>(*this) : nullptr;
}

float Decoder::gradient_unit() const {
  const Arithmetic how = model_.how.is_exact() ? model_.how : grid_of(model_);
  return how.unit * how.unit * std::min(how.unit, how.logit_scale);
}

}  // namespace shard
