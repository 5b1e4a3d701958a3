/// The encoder-decoder on one device by itself: its gradients are finite differences.

#include "engine/workloads/t5.hpp"

#include "08_decoder/t5_single.hpp"
#include "tests/equivalence/finite_differences.hpp"
#include "tests/equivalence/t5_reference.hpp"

namespace shard::testing {

using decoders::T5Single;

namespace {

T5Model tiny_model(Hidden hidden) {
  T5Model m;
  m.encoder_blocks = 2, m.decoder_blocks = 2, m.model_dim = 4, m.heads = 2, m.head_dim = 2, m.hidden_dim = 3;
  m.vocabulary = 5, m.buckets = 6, m.max_distance = 4;
  m.hidden = hidden, m.is_tied = hidden == Hidden::relu;
  if (m.is_tied) m.how.logit_scale = 1 / std::sqrt(static_cast<float>(m.model_dim));
  return m;
}

}  // namespace

TEST_CASE("T5: the gradients of the single engine are the definition's finite differences") {
  for (Hidden hidden : {Hidden::relu, Hidden::geglu}) {
    const T5Model model = tiny_model(hidden);
    T5Single engine(group(), model);
    check_gradients<SampledT5>(engine, model, AtPoint(T5(model, 5, 4)));
  }
}

}  // namespace shard::testing
