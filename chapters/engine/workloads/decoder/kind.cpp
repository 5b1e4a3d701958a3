#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/layers/tokens/tokens.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/decoder/mistral.hpp"
#include "engine/workloads/decoder/options.hpp"

namespace shard {

namespace {

/// \throws Error usage for sizes that are no network's
void require_sizes(const DecoderModel& m) {
  auto refuse_option = [](const Option<Index>& of, const std::string& expected, Index given) {
    throw Error(Code::usage, "{}: expected {}, given {}", of.name, expected, given);
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

class DecoderKind : public TextKind {
 public:
  explicit DecoderKind(Index experts)
      : experts_(option_or_none("--experts", "Experts of each block; 0 for a plain feed-forward", experts)) {}

  std::string name() const override { return experts_.initial == "0" ? "decoder" : "mixture decoder"; }
  bool makes(const std::string& other) const override {
    return other == decoder().name() || other == decoder(usual_experts).name();
  }
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
    return {std::make_shared<Decoder>(m, 1), mistral_names(m, mistral_table(model, m))};
  }
  std::shared_ptr<Workload> described_by(const ForeignModel& model, const Options& o) const override {
    const DecoderModel m = mistral_model(model, Reading::sizes);
    const Index length = o[decoder_option().length];
    if (length > m.positions)
      throw Error(Code::usage, "{}: expected at most the {} positions of the network, given {}",
                  decoder_option().length.name, m.positions, length);
    return std::make_shared<Decoder>(m, length);
  }
  std::vector<std::string> options_beside_config() const override { return {decoder_option().length.name}; }
  std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const override {
    DecoderModel m;
    m.vocabulary = 8 * model_dim, m.model_dim = model_dim, m.hidden_dim = hidden_dim, m.num_blocks = layers;
    m.heads = std::max<Index>(model_dim / 64, 2);
    m.key_heads = std::max<Index>(m.heads / 4, 1);
    m.head_dim = model_dim / m.heads / 2 * 2;
    m.how = Arithmetic::real(m.head_dim);
    m.experts = Options()[experts_], m.top_k = m.is_mixture() ? 2 : 0;
    return std::make_shared<Decoder>(m, std::min<Index>(model_dim, 128));
  }

 private:
  Option<Index> experts_;
};

}  // namespace

const WorkloadKind& decoder(Index experts) {
  static std::map<Index, DecoderKind> kinds;
  return kinds.try_emplace(experts, experts).first->second;
}

}  // namespace shard
