/// The cases of this chapter: small numbers, whose sums are exact, and the closed forms of what is sent.

#include "attention.hpp"
#include "attention_by_heads.hpp"
#include "batch_norm.hpp"
#include "claims.hpp"
#include "cross_entropy.hpp"
#include "dropout.hpp"
#include "embedding.hpp"
#include "engine/device/books/collective_costs.hpp"
#include "engine/workloads/exact_values.hpp"
#include "layer_norm.hpp"
#include "linear.hpp"
#include "lstm.hpp"
#include "pooling.hpp"
#include "residual.hpp"
#include "rms_norm.hpp"

namespace shard::layer_cuts {

namespace {

// Sizes that nothing divides. Of some there are fewer than eight.
constexpr Index rows = 7, features = 10, hidden = 6, outputs = 5;

template <class L>
std::unique_ptr<Layer> make(Communicator& group, Arithmetic arithmetic) {
  return std::make_unique<L>(group, arithmetic);
}

template <class L>
Claim claim(const std::string& axis, Verdict verdict, const std::string& price, Form sends = {}) {
  return {axis, verdict, price, std::move(sends), make<L>, L::shown_at};
}

/// \name Numbers: the same on every device. None of them is 0
/// @{
/// ±1 and ±3, times `scale`.
HostTensor numbers(const std::string& name, Shape shape, float scale = 1) {
  HostTensor t = exact::integers(std::move(shape), CounterRandom(7, name), -2, 1, 2 * scale);
  for (float& value : t.values) value += scale;
  return t;
}
/// 1, 3, 5 and 7: no sum of them is 0.
HostTensor positive(const std::string& name, Shape shape) {
  HostTensor t = numbers(name, std::move(shape));
  for (float& value : t.values) value += 4;
  return t;
}
/// ±1.
HostTensor signs(const std::string& name, Shape shape) {
  HostTensor t = exact::integers(std::move(shape), CounterRandom(7, name), 0, 1, 2);
  for (float& value : t.values) value -= 1;
  return t;
}
/// Tokens of a vocabulary, 0 among them, in a column.
HostTensor tokens(const std::string& name, Index count, Index vocabulary) {
  return exact::integers({count, 1}, CounterRandom(7, name), 0, static_cast<int>(vocabulary) - 1);
}
/// @}

/// \name What a device sends
/// @{
Form nothing() {
  return [](int, int) { return Traffic{}; };
}
/// An all-reduce of `elements` numbers.
Form reduced(Index elements) {
  return [=](int n, int me) { return ring_all_reduce(elements, n, me); };
}
/// An all-gather along an axis of this extent, with `of_one` numbers for each index; and a reduce-scatter.
Form gathered(Index extent, Index of_one) {
  return [=](int n, int me) { return ring_all_gather(slices(extent, of_one, n), me); };
}
Form scattered(Index extent, Index of_one) {
  return [=](int n, int me) { return ring_reduce_scatter(slices(extent, of_one, n), me); };
}
/// A row of `width` numbers to each neighbour.
Form halo(Index length, Index width) {
  return [=](int n, int me) {
    const Range mine = part(length, n, me);
    if (mine.size() == 0) return Traffic{};
    const Index neighbours = (mine.begin > 0 ? 1 : 0) + (mine.end < length ? 1 : 0);
    return Traffic{neighbours, neighbours * width * bytes_per_element};
  };
}
/// Two tensors to the next device, and two to the one before.
Form passed_on(Index elements) {
  return [=](int n, int me) {
    const Index sends = 2 * ((me + 1 < n ? 1 : 0) + (me > 0 ? 1 : 0));
    return Traffic{sends, sends * elements * bytes_per_element};
  };
}
Form operator+(const Form& a, const Form& b) {
  return [=](int n, int me) { return a(n, me) + b(n, me); };
}
Form operator*(int times, const Form& form) {
  return [=](int n, int me) { return times * form(n, me); };
}
/// @}

LayerCase linear() {
  return {"linear",
          numbers("linear x", {rows, features}),
          numbers("linear dy", {rows, outputs}),
          {{"weights", numbers("linear w", {features, outputs})}},
          make<Linear<Replicated>>,
          {claim<Linear<Sharded<0>>>("batch", Verdict::free, "dW is a sum", reduced(features * outputs)),
           claim<LinearByOutputs>("outputs", Verdict::exact, "all_reduce of dx", reduced(rows * features)),
           claim<LinearByInputs<false>>("inputs", Verdict::exact, "all_reduce of y", reduced(rows * outputs)),
           claim<LinearByInputs<true>>("inputs", Verdict::differs, "y is not summed")}};
}

LayerCase residual() {
  return {"residual block",
          numbers("residual x", {rows, features}),
          numbers("residual dy", {rows, features}),
          {{"w0", numbers("residual w0", {features, hidden})},
           {"w1", numbers("residual w1", {hidden, features})}},
          make<Residual<Replicated>>,
          {claim<Residual<Sharded<0>>>("batch", Verdict::free, "dW0, dW1 are sums",
                                       2 * reduced(features * hidden)),
           claim<ResidualByFeatures<false>>("hidden", Verdict::exact, "all_reduce of y, of dx",
                                            2 * reduced(rows * features)),
           claim<ResidualByFeatures<true>>("hidden", Verdict::differs, "x is added before the sum")}};
}

LayerCase rms_norm() {
  return {"RMSNorm",
          numbers("rms x", {rows, features}),
          numbers("rms dy", {rows, features}),
          {{"weights", numbers("rms w", {features}, 0.25F)}},
          make<RmsNorm<Replicated>>,
          {claim<RmsNorm<Sharded<0>>>("batch, sequence", Verdict::free, "dw is a sum", reduced(features)),
           claim<RmsNormByFeatures<false>>("features", Verdict::exact, "all_reduce of a number a row, twice",
                                           2 * reduced(rows)),
           claim<RmsNormByFeatures<true>>("features", Verdict::differs, "the mean of my features")}};
}

LayerCase layer_norm() {
  return {
      "LayerNorm",
      numbers("ln x", {rows, features}),
      numbers("ln dy", {rows, features}),
      {{"weights", numbers("ln w", {features}, 0.25F)}, {"bias", numbers("ln b", {features})}},
      make<LayerNorm<Replicated>>,
      {claim<LayerNorm<Sharded<0>>>("batch, sequence", Verdict::free, "dw, db are sums",
                                    2 * reduced(features)),
       claim<LayerNormByFeatures<false>>("features", Verdict::exact, "all_reduce of two numbers a row, twice",
                                         2 * reduced(2 * rows)),
       claim<LayerNormByFeatures<true>>("features", Verdict::differs, "mean and variance of my features")}};
}

LayerCase batch_norm() {
  return {
      "BatchNorm",
      numbers("bn x", {rows, features}),
      numbers("bn dy", {rows, features}),
      {{"weights", numbers("bn w", {features}, 0.25F)}, {"bias", numbers("bn b", {features})}},
      make<BatchNorm<Replicated, Replicated>>,
      {claim<BatchNorm<Sharded<1>, Sharded<0>>>("features", Verdict::free, "", nothing()),
       claim<BatchNorm<Sharded<0>, Replicated>>(
           "batch", Verdict::exact, "all_reduce of two numbers a feature, twice", 2 * reduced(2 * features)),
       claim<BatchNorm<Sharded<0>, Replicated, true>>("batch", Verdict::differs,
                                                      "mean and variance of my rows")}};
}

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

// Of attention.
constexpr Index sequences = 3, length = 7, width = 6;
constexpr Index of_x = sequences * length * width;

/// Scores are small integers: a row of powers of two spans at most 2^16, and sums of them are exact.
LayerCase attention(const std::string& name, Index heads, Index kv_heads) {
  const Index of_q = heads * head_dim, of_k = kv_heads * head_dim;
  const Form weights = 2 * reduced(width * of_q) + 2 * reduced(width * of_k);
  const Form keys = gathered(length, sequences * of_k) + scattered(length, sequences * of_k);
  return {name,
          signs(name + " x", {sequences, length, width}),
          numbers(name + " dy", {sequences, length, width}),
          {{"wq", exact::sparse_signs({width, of_q}, CounterRandom(7, name + " wq"))},
           {"wk", exact::sparse_signs({width, of_k}, CounterRandom(7, name + " wk"))},
           {"wv", numbers(name + " wv", {width, of_k})},
           {"wo", numbers(name + " wo", {of_q, width})}},
          make<Attention<Replicated>>,
          {claim<Attention<Sharded<0>>>("batch", Verdict::free, "the weights' gradients are sums", weights),
           claim<AttentionByHeads<Sharded<1>, false>>("heads", Verdict::exact, "all_reduce of y, of dx",
                                                      2 * reduced(of_x)),
           claim<AttentionByHeads<Sharded<1>, true>>("heads", Verdict::differs, "dx is not summed"),
           claim<Attention<Sharded<1>>>("sequence", Verdict::exact,
                                        "all_gather of k, v; reduce_scatter of dk, dv", weights + 2 * keys),
           claim<Attention<Sharded<1>, true>>("sequence", Verdict::differs, "my tokens' keys and values")}};
}

template <Pool pool>
LayerCase pooling(const std::string& name) {
  return {name,
          numbers(name + " x", {rows, features}),
          numbers(name + " dy", {rows, features}),
          {},
          make<Pooling<Replicated, pool>>,
          {claim<Pooling<Sharded<1>, pool>>("channels", Verdict::free, "", nothing()),
           claim<Pooling<Sharded<0>, pool>>("space", Verdict::exact, "a row from each neighbour, twice",
                                            2 * halo(rows, features)),
           claim<Pooling<Sharded<0>, pool, true>>("space", Verdict::differs, "the border of my rows")},
          /*has_zeros=*/true};
}

LayerCase max_pooling() {
  return pooling<Pool::largest>("max pooling");
}
LayerCase average_pooling() {
  return pooling<Pool::mean>("average pooling");
}

LayerCase lstm() {
  const Index length = 4, sequences = 3, width = 5;
  std::map<std::string, HostTensor> weights;
  for (const std::string gate : {"i", "f", "g", "o"}) {
    weights["w_" + gate] = numbers("lstm w" + gate, {width, hidden}, 0.25F);
    weights["u_" + gate] = numbers("lstm u" + gate, {hidden, hidden}, 0.25F);
  }
  const Form gates = 4 * reduced(width * hidden) + 4 * reduced(hidden * hidden);
  const Form states = (length - 1) * (gathered(hidden, sequences) + scattered(hidden, sequences));
  return {"LSTM",
          numbers("lstm x", {length, sequences, width}, 0.25F),  // so that no gate is quite open or shut

          numbers("lstm dy", {length, sequences, hidden}),
          std::move(weights),
          make<Lstm<Replicated>>,
          {claim<Lstm<Sharded<1>>>("batch", Verdict::free, "the weights' gradients are sums", gates),
           claim<LstmByFeatures<false>>("features, gates", Verdict::exact,
                                        "all_gather of h, each token; dh, dx summed",
                                        states + reduced(length * sequences * width)),
           claim<LstmByFeatures<true>>("features, gates", Verdict::differs, "h of my features"),
           claim<Lstm<Sharded<0>>>("sequence", Verdict::exact, "h and c to the next device, dh and dc back",
                                   gates + passed_on(sequences * hidden)),
           claim<Lstm<Sharded<0>, true>>("sequence", Verdict::differs, "each device begins with zeros")}};
}

}  // namespace

LayerCase multi_head_attention() {
  return attention("multi-head attention", 3, 3);
}

LayerCase grouped_query_attention() {
  const Index kv_heads = 2;
  LayerCase layer = attention("grouped-query attention", 6, kv_heads);
  const Index of_wk = width * kv_heads * head_dim;
  layer.claims.push_back(claim<AttentionByHeads<Replicated, false>>("query heads", Verdict::exact,
                                                                    "all_reduce of y, dx, dWk, dWv",
                                                                    2 * reduced(of_x) + 2 * reduced(of_wk)));
  layer.claims.push_back(
      claim<AttentionByHeads<Replicated, true>>("query heads", Verdict::differs, "dWk, dWv are not summed"));
  return layer;
}

std::vector<LayerCase> all_layers() {
  std::vector<LayerCase> all;
  for (LayerCase (*layer)() :
       {linear, residual, rms_norm, layer_norm, batch_norm, embedding, cross_entropy, dropout,
        multi_head_attention, grouped_query_attention, max_pooling, average_pooling, lstm})
    all.push_back(layer());
  return all;
}

}  // namespace shard::layer_cuts
