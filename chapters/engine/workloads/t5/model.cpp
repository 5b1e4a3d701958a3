#include "engine/workloads/t5/model.hpp"

#include <fmt/format.h>

#include <cmath>

#include "engine/workloads/decoder/model.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

std::string t5_name(Side side, const std::string& parameter) {
  return fmt::format("{}/{}", side == Side::encoder ? "encoder" : "decoder", parameter);
}

std::string t5_name(Side side, Index block, const std::string& parameter) {
  return t5_name(side, fmt::format("block_{}/{}", block, parameter));
}

std::string T5Model::describe() const {
  return fmt::format("{} + {} blocks of {}, {} heads of {}, hidden {}, {} tokens", encoder_blocks,
                     decoder_blocks, model_dim, heads, head_dim, hidden_dim, vocabulary);
}

namespace {

/// The parameters of a network, with the usual bounds of initial values. Scores are not scaled, so the
/// queries' weights are small.
class ParameterList {
 public:
  explicit ParameterList(const T5Model& model) : m_(model) {}

  std::vector<Parameter> all() {
    matrix(embedding_name(), m_.vocabulary, m_.model_dim, 1);
    for (Side side : {Side::encoder, Side::decoder}) stack(side);
    if (!m_.is_tied) matrix(head_name(), m_.vocabulary, m_.model_dim, static_cast<double>(m_.model_dim));
    return std::move(all_);
  }

 private:
  /// Adds a matrix whose elements have the mean square 1 / `divisor`.
  void matrix(const std::string& name, Index rows, Index columns, double divisor) {
    all_.push_back({name, {rows, columns}, static_cast<float>(std::sqrt(3 / divisor))});
  }
  void weights(const std::string& name, Index in, Index out) {
    matrix(name, in, out, static_cast<double>(in));
  }
  void norm(const std::string& name) { all_.push_back({name, {m_.model_dim}, 0, 1}); }

  void stack(Side side) {
    matrix(t5_name(side, "position_bias"), m_.buckets, m_.heads, static_cast<double>(m_.model_dim));
    for (Index b = 0; b < m_.blocks(side); ++b) {
      auto name = [&](const char* parameter) { return t5_name(side, b, parameter); };
      attention(side, b, "self_");
      if (side == Side::decoder) attention(side, b, "cross_");
      norm(name("feed_forward_norm"));
      if (m_.has_gate()) weights(name("gate"), m_.model_dim, m_.hidden_dim);
      weights(name("up"), m_.model_dim, m_.hidden_dim);
      weights(name("down"), m_.hidden_dim, m_.model_dim);
    }
    norm(t5_name(side, "final_norm"));
  }
  void attention(Side side, Index block, const std::string& which) {
    auto name = [&](const char* parameter) { return t5_name(side, block, which + parameter); };
    norm(name("norm"));
    matrix(name("query"), m_.model_dim, m_.width(), static_cast<double>(m_.model_dim * m_.head_dim));
    weights(name("key"), m_.model_dim, m_.width());
    weights(name("value"), m_.model_dim, m_.width());
    weights(name("output"), m_.width(), m_.model_dim);
  }

  T5Model m_;
  std::vector<Parameter> all_;
};

}  // namespace

std::vector<Parameter> T5Model::parameters() const {
  return ParameterList(*this).all();
}

T5Model t5_of(const Checkpoint& checkpoint, Index head_dim) {
  T5Model m;
  const Shape table = matrix_shape(checkpoint, embedding_name());
  m.vocabulary = table[0], m.model_dim = table[1];
  m.head_dim = head_dim;
  m.is_tied = !checkpoint.contains(head_name());
  auto count = [&](Side side) {
    Index blocks = 0;
    while (checkpoint.contains(t5_name(side, blocks, "self_query"))) ++blocks;
    return blocks;
  };
  m.encoder_blocks = count(Side::encoder), m.decoder_blocks = count(Side::decoder);
  const Shape bias = matrix_shape(checkpoint, t5_name(Side::encoder, "position_bias"));
  m.buckets = bias[0], m.heads = bias[1];
  m.hidden_dim = matrix_shape(checkpoint, t5_name(Side::encoder, 0, "up"))[1];
  if (checkpoint.contains(t5_name(Side::encoder, 0, "gate"))) m.hidden = Hidden::geglu;
  return m;
}

}  // namespace shard
