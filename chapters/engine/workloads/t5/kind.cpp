#include <fmt/format.h>

#include <cmath>

#include "engine/layers/tokens/tokens.hpp"
#include "engine/workloads/decoder/model.hpp"
#include "engine/workloads/decoder/options.hpp"
#include "engine/workloads/t5/model.hpp"
#include "engine/workloads/t5/t5.hpp"

namespace shard {

/// A function makes the options at its first call, since kinds are made before other files' globals.
struct T5Options {
  Option<Index> encoder_blocks{"--encoder-blocks", 4, "Blocks of the encoder; --blocks are the decoder's"};
  Option<Index> source_length =
      of_data(Option<Index>("--source-length", 16, "Tokens of each sequence that the encoder reads"));
  Option<Index> buckets{"--buckets", 32, "Buckets of distances"};
  Option<Index> max_distance{"--max-distance", 128, "From it on, all distances are in one bucket"};
  Option<std::string> feed_forward =
      option_of("--feed-forward", "relu", "gated-gelu", "relu, or gated-gelu, with a third matrix");
};
inline const T5Options& t5_option() {
  static const T5Options options;
  return options;
}

namespace {

/// \throws Error usage for sizes that give no buckets
void require_buckets(const T5Model& m) {
  if (m.buckets < 4)
    throw Error(Code::usage, "{}: expected 4 or more, given {}", t5_option().buckets.name, m.buckets);
  if (m.max_distance <= m.buckets / 2)
    throw Error(Code::usage, "{}: expected more than {}, half of the buckets, given {}",
                t5_option().max_distance.name, m.buckets / 2, m.max_distance);
}

/// A tied head has larger logits than a head of its own.
Arithmetic real(const T5Model& m) {
  Arithmetic how;
  if (m.is_tied) how.logit_scale = 1 / std::sqrt(static_cast<float>(m.model_dim));
  return how;
}

void set_hyper_parameters(T5Model& m, const Options& o) {
  m.max_distance = o[t5_option().max_distance];
  m.epsilon = static_cast<float>(o[decoder_option().epsilon]);
  m.how = real(m);
  require_buckets(m);
}

class T5Kind : public TextKind {
 public:
  std::string name() const override { return "t5"; }
  bool reads_sources() const override { return true; }
  std::string parameters_help() const override {
    return "safetensors file with embedding, encoder/block_0/self_query, ..., decoder/final_norm, head";
  }
  std::vector<OptionText> training_options() const override {
    const DecoderOptions& o = decoder_option();
    return {o.blocks,
            t5_option().encoder_blocks,
            o.model_dim,
            o.heads,
            o.hidden_dim,
            t5_option().buckets,
            t5_option().feed_forward,
            o.length,
            t5_option().source_length};
  }
  std::vector<OptionText> options() const override {
    const DecoderOptions& o = decoder_option();
    return {o.head_dim, t5_option().max_distance, o.epsilon, o.data};
  }
  std::shared_ptr<Workload> make(const Options& o) const override {
    const DecoderOptions& of = decoder_option();
    T5Model m;
    m.vocabulary = Characters(o[of.data]).vocabulary();
    m.model_dim = o[of.model_dim];
    m.heads = o[of.heads];
    m.head_dim = o[of.head_dim];
    m.hidden_dim = o[of.hidden_dim];
    m.encoder_blocks = o[t5_option().encoder_blocks];
    m.decoder_blocks = o[of.blocks];
    m.buckets = o[t5_option().buckets];
    if (o[t5_option().feed_forward] == "gated-gelu") m.hidden = Hidden::geglu;
    set_hyper_parameters(m, o);
    return std::make_shared<T5>(m, o[t5_option().source_length], o[of.length], o[of.data]);
  }
  /// Options give the hyper-parameters that shapes do not determine.
  std::shared_ptr<Workload> read(const Checkpoint& checkpoint, const Options& o) const override {
    T5Model m = t5_of(checkpoint, o[decoder_option().head_dim]);
    set_hyper_parameters(m, o);
    require_parameters(checkpoint, m.parameters(), "t5");
    return std::make_shared<T5>(m, 1, 1, o[decoder_option().data]);
  }
  std::vector<std::string> options_beside_config() const override {
    return {t5_option().source_length.name, decoder_option().length.name};
  }
  std::shared_ptr<Workload> described_by(const ForeignModel& model, const Options& o) const override {
    return std::make_shared<T5>(t5_model(model, Reading::sizes), o[t5_option().source_length],
                                o[decoder_option().length]);
  }
  ForeignNetwork network_of(const ForeignModel& model) const override {
    const T5Model m = t5_model(model);
    return {std::make_shared<T5>(m, 1, 1), t5_names(m, t5_table(model, m))};
  }
  std::shared_ptr<Workload> sized(Index layers, Index model_dim, Index hidden_dim) const override {
    T5Model m;
    m.vocabulary = 8 * model_dim, m.model_dim = model_dim, m.hidden_dim = hidden_dim;
    m.encoder_blocks = layers / 2, m.decoder_blocks = layers - layers / 2;
    m.heads = std::max<Index>(model_dim / 64, 2);
    m.head_dim = model_dim / m.heads;
    m.buckets = 8, m.max_distance = 7;
    const Index length = std::min<Index>(model_dim, 128);
    return std::make_shared<T5>(m, length, length);
  }
};

}  // namespace

const WorkloadKind& t5() {
  static const T5Kind kind;
  return kind;
}

}  // namespace shard
