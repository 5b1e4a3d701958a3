#include "cases.hpp"
#include "cross_entropy.hpp"
#include "dropout.hpp"
#include "embedding.hpp"

namespace shard::layer_cuts {

LayerCase embedding() {
  const Index vocabulary = 11, count = 40;
  return {
      "embedding",
      tokens("tokens", count, vocabulary),
      positive("embedding dy", {count, features}),
      {{"table", numbers("table", {vocabulary, features})}},
      make<Embedding<Replicated>>,
      {claim<Embedding<Sharded<0>>>("batch, sequence", Verdict::free, "the table's gradient is a sum",
                                    reduced(vocabulary * features)),
       claim<EmbeddingByFeatures>("features", Verdict::free, "", nothing()),
       claim<EmbeddingByVocabulary<false>>("vocabulary", Verdict::exact, "all_reduce of y",
                                           reduced(count * features)),
       claim<EmbeddingByVocabulary<true>>("vocabulary", Verdict::differs, "the nearest token that I have")}};
}

LayerCase cross_entropy() {
  const Index vocabulary = 13;
  const HostTensor labels = tokens("labels", rows, vocabulary);
  return {
      "cross entropy",
      numbers("logits", {rows, vocabulary}),
      {{1}, {2}},
      {{"labels", {{rows}, labels.values}}},
      make<CrossEntropy<Replicated>>,
      {claim<CrossEntropy<Sharded<0>>>("batch, sequence", Verdict::free, "the loss is a sum", reduced(1)),
       claim<CrossEntropyByVocabulary<false>>("vocabulary", Verdict::exact,
                                              "all_reduce of a number a row, three times", 3 * reduced(rows)),
       claim<CrossEntropyByVocabulary<true>>("vocabulary", Verdict::differs, "the softmax of my columns")}};
}

LayerCase dropout() {
  return {"dropout",
          numbers("dropout x", {rows, features}),
          numbers("dropout dy", {rows, features}),
          {},
          make<Dropout<Replicated>>,
          {claim<Dropout<Sharded<0>>>("batch, sequence", Verdict::free, "", nothing()),
           claim<Dropout<Sharded<1>>>("features", Verdict::free, "", nothing()),
           claim<Dropout<Sharded<0>, true>>("batch", Verdict::differs, "each device counts from 0")},
          /*has_zeros=*/true};
}

}  // namespace shard::layer_cuts
