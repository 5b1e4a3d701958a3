#include "engine/workloads/decoder_model.hpp"

#include <fmt/format.h>

#include <cmath>

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
  return fmt::format("{} blocks of {}, {} heads of {} ({} key-value heads), {}{}, {} tokens", num_blocks,
                     model_dim, heads, head_dim, key_heads,
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

}  // namespace shard
