#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/layers/tokens/tokens.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/decoder/model.hpp"
#include "engine/workloads/decoder/options.hpp"

namespace shard {

namespace {

/// \throws Error usage for sizes that are no network's
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

class DecoderKind : public TextKind<Decoder> {
 public:
  explicit DecoderKind(Index experts)
      : experts_(option_or_none("--experts", "Experts of each block; 0 for a plain feed-forward", experts)) {}

  std::string name() const override { return experts_.initial == "0" ? "decoder" : "mixture decoder"; }
  std::string parameters_help() const override {
    return "safetensors file with embedding, block_0/query, ..., final_norm, head";
  }
  std::vector<OptionText> training_options() const override {
    const DecoderOptions& o = decoder_option();
    return {o.blocks, o.model_dim, o.heads, o.key_heads, o.hidden_dim, experts_, o.length, o.pieces};
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
    return std::make_shared<Decoder>(m, o[decoder_option().length], o[decoder_option().data],
                                     o[decoder_option().pieces] == "sentences");
  }
  std::vector<OptionText> options() const override {
    const DecoderOptions& o = decoder_option();
    return {o.head_dim, o.top_k, o.window, o.rope_base, o.epsilon, o.data};
  }
  /// Options give the hyper-parameters that shapes do not determine.
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
  std::shared_ptr<Workload> described_by(const ForeignModel& model, const Options& o) const override {
    const DecoderModel m = mistral_model(model);
    const Index length = o[decoder_option().length];
    if (length > m.positions)
      throw Error(Code::usage, fmt::format("{}: expected at most the {} positions of the network, given {}",
                                           decoder_option().length.name, m.positions, length));
    return std::make_shared<Decoder>(m, length);
  }
  std::vector<std::string> options_beside_config() const override { return {decoder_option().length.name}; }
  std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const override {
    const Index heads = std::max<Index>(model_dim / 64, 2);
    DecoderModel m = small(layers, model_dim, heads, std::max<Index>(heads / 4, 1), model_dim / heads / 2 * 2,
                           hidden_dim, 8 * model_dim);
    m.experts = Options()[experts_], m.top_k = m.is_mixture() ? 2 : 0;
    return std::make_shared<Decoder>(m, std::min<Index>(model_dim, 128));
  }

  std::vector<TestCase> cases(const Accepts& accepts) const override {
    DecoderModel windowed = small(2, 10, 6, 2, 2, 7, 13), mixture = small(2, 8, 4, 2, 4, 5, 7);
    windowed.window = 3, windowed.is_tied = true;
    mixture.experts = 5, mixture.top_k = 2;
    std::vector<TestCase> all;
    auto add = [&](const DecoderModel& model, Index length, Index batch) {
      add_case(all, model, &DecoderModel::num_blocks, batch, accepts,
               [&](const DecoderModel& m) { return std::make_shared<Decoder>(m, length); });
    };
    add(small(1, 6, 3, 3, 2, 5, 11), 5, 3);
    add(windowed, 7, 2);
    add(mixture, 3, 5);
    add(small(5, 12, 6, 3, 4, 9, 17), 11, 3);
    return all;
  }
  /// Without experts, unless the variant accepts only a mixture.
  TestCase streamed_case(const Accepts& accepts) const override {
    for (Index blocks = 2;; ++blocks)
      for (Index experts : {0, 5}) {
        DecoderModel m = small(blocks, 6, 2, 1, 2, 5, 11);
        m.experts = experts, m.top_k = experts > 0 ? 2 : 0;
        auto made = std::make_shared<Decoder>(m, 5);
        if (blocks == 64 || accepts(*made)) return {made, 11};
      }
  }
  /// All divided sizes are multiples of the number of devices, so all slices have the same shape. The fewest
  /// blocks that a variant accepts, since each block adds calls in which tests plant faults.
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
  static ExactProblem live_problem(const Decoder& network, int devices) {
    // With other seeds, an expert is not chosen on some device, or more than 10 % of a gradient are 0.
    const std::uint64_t seed = network.model().is_mixture() ? 3378 : 9;
    const ExactProblem problem = network.exact_problem(devices, seed);
    return live(problem, devices, network.model().vocabulary, 0, problem.input.shape[1] / 2);
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

}  // namespace

const WorkloadKind& decoder(Index experts) {
  static std::map<Index, DecoderKind> kinds;
  return kinds.try_emplace(experts, experts).first->second;
}

}  // namespace shard
