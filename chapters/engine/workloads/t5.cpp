#include "engine/workloads/t5.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/layers/language_model.hpp"
#include "engine/loss.hpp"
#include "engine/workloads/decoder_model.hpp"
#include "engine/workloads/decoder_options.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/t5_network.hpp"
#include "engine/workloads/t5_solution.hpp"

namespace shard {

namespace {

/// Those that decoders do not have.
struct T5Options {
  Option<Index> encoder_blocks{"--encoder-blocks", 4, "Blocks of the encoder; --blocks are the decoder's"};
  Option<Index> source_length{"--source-length", 16, "Tokens of each sequence that the encoder reads"};
  Option<Index> buckets{"--buckets", 32, "Buckets of distances"};
  Option<Index> max_distance{"--max-distance", 128, "From it on, all distances are in one bucket"};
  Option<std::string> feed_forward = [] {
    Option<std::string> option("--feed-forward", "relu", "relu, or gated-gelu, with a third matrix");
    option.expected = "relu or gated-gelu";
    option.accepts = [](const std::string& text) { return text == "relu" || text == "gated-gelu"; };
    return option;
  }();
};
const T5Options& option() {
  static const T5Options options;
  return options;
}

/// \throws Error usage for numbers that make no buckets
void require_buckets(const T5Model& m) {
  if (m.buckets < 4)
    throw Error(Code::usage,
                fmt::format("{}: expected 4 or more, given {}", option().buckets.name, m.buckets));
  if (m.max_distance <= m.buckets / 2)
    throw Error(Code::usage, fmt::format("{}: expected more than {}, half of the buckets, given {}",
                                         option().max_distance.name, m.buckets / 2, m.max_distance));
}

void set_hyper_parameters(T5Model& m, const Options& o) {
  m.max_distance = o[option().max_distance];
  m.epsilon = static_cast<float>(o[decoder_option().epsilon]);
  if (m.is_tied) m.how.logit_scale = 1 / std::sqrt(static_cast<float>(m.model_dim));
  require_buckets(m);
}

class T5Kind : public WorkloadKind {
 public:
  std::string name() const override { return "t5"; }
  bool has_tokens() const override { return true; }
  bool reads_sources() const override { return true; }
  bool has_foreign_networks() const override { return true; }
  TrainingDefaults training_defaults() const override { return {16, 100}; }
  std::string parameters_help() const override {
    return "safetensors file with embedding, encoder/block_0/self_query, ..., decoder/final_norm, head";
  }
  std::vector<OptionText> training_options() const override {
    const DecoderOptions& o = decoder_option();
    return {o.blocks,
            option().encoder_blocks,
            o.model_dim,
            o.heads,
            o.hidden_dim,
            option().buckets,
            option().feed_forward,
            o.length,
            option().source_length};
  }
  std::vector<OptionText> options() const override {
    const DecoderOptions& o = decoder_option();
    return {o.head_dim, option().max_distance, o.epsilon, o.data};
  }
  std::shared_ptr<Workload> make(const Options& o) const override {
    const DecoderOptions& of = decoder_option();
    T5Model m;
    m.vocabulary = Characters(o[of.data]).vocabulary();
    m.model_dim = o[of.model_dim];
    m.heads = o[of.heads];
    m.head_dim = o[of.head_dim];
    m.hidden_dim = o[of.hidden_dim];
    m.encoder_blocks = o[option().encoder_blocks];
    m.decoder_blocks = o[of.blocks];
    m.buckets = o[option().buckets];
    if (o[option().feed_forward] == "gated-gelu") m.hidden = Hidden::geglu;
    set_hyper_parameters(m, o);
    return std::make_shared<T5>(m, o[option().source_length], o[of.length], o[of.data]);
  }
  bool deepen(Options& options, const Options& given) const override {
    const Option<Index>& blocks = decoder_option().blocks;
    if (given.has(blocks.name)) return false;
    options = options.with(blocks, options[blocks] + 1);
    return true;
  }
  /// What shapes do not tell is taken from the options.
  std::shared_ptr<Workload> read(const Checkpoint& checkpoint, const Options& o) const override {
    T5Model m = t5_of(checkpoint, o[decoder_option().head_dim]);
    set_hyper_parameters(m, o);
    require_parameters(checkpoint, m.parameters(), "t5");
    return std::make_shared<T5>(m, 1, 1, o[decoder_option().data]);
  }
  ForeignNetwork network_of(const ForeignModel& model) const override {
    const T5Model m = t5_model(model);
    return {std::make_shared<T5>(m, 1, 1), t5_names(m)};
  }
  std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const override {
    return std::make_shared<T5>(small(layers / 2, layers - layers / 2, model_dim, 2, 2, hidden_dim, 11), 5,
                                3);
  }

  std::vector<TestCase> cases(const Accepts& accepts) const override {
    std::vector<TestCase> all;
    // With more blocks where there must be some for each device.
    auto add = [&](T5Model m, Index source_length, Index length, Index batch) {
      for (; m.decoder_blocks < 64; ++m.decoder_blocks) {
        auto made = std::make_shared<T5>(m, source_length, length);
        if (accepts(*made)) return all.push_back({made, batch});
      }
    };
    T5Model gated = small(2, 1, 10, 5, 2, 7, 13), deep = small(3, 2, 12, 6, 4, 9, 17);
    gated.hidden = Hidden::geglu, gated.is_tied = false;
    deep.buckets = 9, deep.is_tied = false;
    add(small(1, 1, 6, 3, 3, 5, 11), 5, 3, 3);
    add(gated, 4, 7, 2);
    add(deep, 11, 9, 3);
    return all;
  }
  TestCase streamed_case(const Accepts& accepts) const override {
    for (Index blocks = 1;; ++blocks) {
      auto made = std::make_shared<T5>(small(1, blocks, 6, 2, 2, 5, 11), 4, 5);
      if (blocks == 64 || accepts(*made)) return {made, 11};
    }
  }
  /// Everything that is divided is a multiple of the devices, so that all slices are alike.
  std::vector<ExactProblem> live_problems(int devices, const Accepts& accepts) const override {
    std::vector<ExactProblem> all;
    const Index n = devices;
    for (Hidden hidden : {Hidden::relu, Hidden::geglu}) {
      T5Model m = small(n, n, 2 * n, n, 2, 2 * n, 4 * n);
      m.hidden = hidden, m.is_tied = hidden == Hidden::relu;
      const T5 made(m, 2 * n, n);
      if (accepts(made)) all.push_back(made.exact_problem(n, 3));
    }
    return all;
  }

 private:
  static T5Model small(Index encoder_blocks, Index decoder_blocks, Index model_dim, Index heads,
                       Index head_dim, Index hidden_dim, Index vocabulary) {
    T5Model m;
    m.encoder_blocks = encoder_blocks, m.decoder_blocks = decoder_blocks, m.model_dim = model_dim;
    m.heads = heads, m.head_dim = head_dim, m.hidden_dim = hidden_dim, m.vocabulary = vocabulary;
    m.buckets = 8, m.max_distance = 7;
    return m;
  }
};

/// Pieces of a text, and the mean loss of the characters that follow each.
class NextPieces : public TrainingBatch {
 public:
  NextPieces(const Characters& text, Index rows, Index source_length, Index length, std::uint64_t seed,
             Index step)
      : text_(text),
        source_length_(source_length),
        length_(length),
        seed_(seed),
        step_(step),
        loss_(rows * length) {}

  Tensor input(Range rows) const override {
    const Index width =
        source_length_ + length_ - 1;  // the ids of both: the last of a source begins its target
    const HostTensor pieces = pieces_of_text(text_, rows, width, seed_, step_);
    std::vector<float> values;
    for (auto row = pieces.values.begin(); row != pieces.values.end(); row += 2 * width) {
      values.push_back(static_cast<float>(source_length_));
      values.insert(values.end(), row, row + source_length_);
      values.insert(values.end(), row + source_length_ - 1, row + width);
      values.insert(values.end(), row + width + source_length_ - 1, row + 2 * width);
    }
    return Tensor::from_host({rows.size(), 1 + source_length_ + 2 * length_}, values);
  }
  Tensor loss_gradient(const Tensor& output, Index first_row) override {
    return loss_.gradient(output, first_row);
  }
  double loss(Communicator& group) const override { return loss_.value(group); }

 private:
  const Characters& text_;
  Index source_length_, length_;
  std::uint64_t seed_;
  Index step_;
  MeanTokenLoss loss_;
};

}  // namespace

const WorkloadKind& t5() {
  static const T5Kind kind;
  return kind;
}

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

void T5::open_data() {
  text_ = std::make_shared<const Characters>(data_);
}

std::unique_ptr<TrainingBatch> T5::batch(Index rows, std::uint64_t seed, Index step) const {
  return std::make_unique<NextPieces>(*text_, rows, source_length_, length_, seed, step);
}

std::string T5::examples(ShardedEngine& engine, std::uint64_t seed) const {
  InferenceMode no_tape;
  auto& model = dynamic_cast<LanguageModel&>(engine);
  MatrixPieces pieces;
  model.see_logits([&](const Tensor& z, const Tokens& t, Index column) {
    pieces.add(z, std::vector<Index>(t.positions.begin(), t.positions.end()), column);
  });
  const NextPieces example(*text_, 1, source_length_, length_, seed, 0);  // no training step has number 0
  engine.forward(example.input(engine.input_rows(1)));
  model.see_logits({});
  const HostTensor logits = pieces.gather(engine.group(), {length_, model_.vocabulary}, model_.vocabulary);
  const std::vector<float> row = example.input({0, 1}).to_host();
  auto shown = [&](Index token) { return text_->letter(token) == '\n' ? ' ' : text_->letter(token); };
  std::string source, target, said;
  for (Index i = 0; i < source_length_; ++i)
    source += shown(static_cast<Index>(row[static_cast<std::size_t>(1 + i)]));
  for (Index i = 0; i < length_; ++i) {
    target += shown(static_cast<Index>(row[static_cast<std::size_t>(1 + source_length_ + length_ + i)]));
    const auto first = logits.values.begin() + i * model_.vocabulary;
    said += shown(std::max_element(first, first + model_.vocabulary) - first);
  }
  return fmt::format("    {}|{}\n    {}|{}\n", source, target, std::string(source.size(), ' '), said);
}

HostTensor T5::random_input(Index batch, std::uint64_t seed) const {
  HostTensor input{input_shape(batch), {}};
  const Index width = input.shape[1];
  const CounterRandom ids(seed, "ids"), missing(seed, "missing labels");
  for (Index i = 0; i < num_elements(input.shape); ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const bool is_label = i % width >= width - length_;
    const int token = ids.integer(at, 0, static_cast<int>(model_.vocabulary - 1));
    if (i % width == 0)
      input.values.push_back(static_cast<float>(source_length_));
    else
      input.values.push_back(is_label && missing.integer(at, 0, 9) == 0 ? float{Tokens::no_label}
                                                                        : static_cast<float>(token));
  }
  return input;
}

ExactProblem T5::exact_problem(Index batch, std::uint64_t seed) const {
  constexpr Index longest = 11;
  T5Model model = model_;
  model.how = exact::grid_of(model.model_dim, model.head_dim);
  auto network =
      std::make_shared<T5>(model, std::min(source_length_, longest), std::min(length_, longest), data_);
  network->text_ = text_;
  ExactProblem problem{network, network->random_input(batch, seed), {}, {}};
  problem.output_grad =
      exact::integers(network->output_shape(batch), CounterRandom(seed, "exact output gradient"), -4, 4, 8);
  problem.weights = exact::transformer_weights(parameters(), seed);
  return problem;
}

Solution T5::solve(const ExactProblem& problem) const {
  return solve_t5(model_, problem);
}

float T5::gradient_unit() const {
  return model_.how.unit * model_.how.unit * std::min(model_.how.unit, model_.how.logit_scale);
}

}  // namespace shard
