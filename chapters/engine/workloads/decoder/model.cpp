#include "engine/workloads/decoder/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/weights/foreign_config.hpp"
#include "engine/workloads/decoder/foreign_tensors.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

std::string block_name(Index block, const std::string& parameter) {
  return fmt::format("block_{}/{}", block, parameter);
}

std::string feed_forward_name(const DecoderModel& model, Index block, Index expert,
                              const std::string& parameter) {
  return model.is_mixture() ? fmt::format("block_{}/expert_{}/{}", block, expert, parameter)
                            : block_name(block, parameter);
}

std::string DecoderModel::describe() const {
  return fmt::format("{} blocks of {}, {} heads of {} ({} key-value heads){}, {}{}, {} tokens", num_blocks,
                     model_dim, heads, head_dim, key_heads, has_bias ? " with biases" : "",
                     is_mixture() ? fmt::format("{} experts of ", experts) : "hidden ", hidden_dim,
                     vocabulary);
}

std::vector<Parameter> DecoderModel::parameters() const {
  std::vector<Parameter> all;
  auto norm = [&](const std::string& name) { all.push_back({name, {model_dim}, 0, 1}); };
  auto matrix = [&](const std::string& name, Index in, Index out) {
    all.push_back({name, {in, out}, std::sqrt(3.0F / static_cast<float>(in))});
  };
  all.push_back({embedding_name(), {vocabulary, model_dim}, 1});
  for (Index b = 0; b < num_blocks; ++b) {
    norm(block_name(b, "attention_norm"));
    matrix(block_name(b, "query"), model_dim, query_width());
    matrix(block_name(b, "key"), model_dim, key_width());
    matrix(block_name(b, "value"), model_dim, key_width());
    if (has_bias)
      for (const char* name : {"query_bias", "key_bias", "value_bias"})
        matrix(block_name(b, name), 1, name == std::string("query_bias") ? query_width() : key_width());
    matrix(block_name(b, "output"), query_width(), model_dim);
    norm(block_name(b, "feed_forward_norm"));
    if (is_mixture()) matrix(block_name(b, "router"), model_dim, experts);
    for (Index e = 0; e < std::max<Index>(experts, 1); ++e) {
      matrix(feed_forward_name(*this, b, e, "gate"), model_dim, hidden_dim);
      matrix(feed_forward_name(*this, b, e, "up"), model_dim, hidden_dim);
      matrix(feed_forward_name(*this, b, e, "down"), hidden_dim, model_dim);
    }
  }
  norm(final_norm_name());
  if (!is_tied)
    all.push_back({head_name(), {vocabulary, model_dim}, std::sqrt(3.0F / static_cast<float>(model_dim))});
  return all;
}

namespace {

/// The number of heads in a width.
Index heads_of(const Checkpoint& checkpoint, const std::string& name, Index head_dim) {
  const Index width = matrix_shape(checkpoint, name)[1];
  if (width % head_dim != 0)
    refuse_parameter(checkpoint, name, fmt::format("a multiple of {} columns, the width of a head", head_dim),
                     fmt::format("{}", width));
  return width / head_dim;
}

}  // namespace

DecoderModel decoder_of(const Checkpoint& checkpoint, Index head_dim) {
  DecoderModel m;
  const Shape table = matrix_shape(checkpoint, embedding_name());
  m.vocabulary = table[0], m.model_dim = table[1];
  m.head_dim = head_dim;
  m.is_tied = !checkpoint.contains(head_name());
  m.has_bias = checkpoint.contains(block_name(0, "query_bias"));
  while (checkpoint.contains(block_name(m.num_blocks, "query"))) ++m.num_blocks;
  m.heads = heads_of(checkpoint, block_name(0, "query"), head_dim);
  m.key_heads = heads_of(checkpoint, block_name(0, "key"), head_dim);
  while (checkpoint.contains(block_name(0, fmt::format("expert_{}/gate", m.experts)))) ++m.experts;
  m.hidden_dim = matrix_shape(checkpoint, feed_forward_name(m, 0, 0, "gate"))[1];
  return m;
}

void require_parameters(const Checkpoint& checkpoint, const std::vector<Parameter>& expected,
                        const std::string& kind) {
  std::set<std::string> known;
  for (const Parameter& p : expected) {
    require_parameter(checkpoint, p.name, p.shape);
    known.insert(p.name);
  }
  for (const std::string& name : checkpoint.names())
    if (!known.contains(name))
      refuse_parameter(checkpoint, "parameters", fmt::format("those of a {} and no other", kind),
                       fmt::format("one named {}, which is unknown", printable(name, 60)));
}

}  // namespace shard
