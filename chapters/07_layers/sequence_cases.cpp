#include "cases.hpp"
#include "lstm.hpp"
#include "pooling.hpp"

namespace shard::layer_cuts {

namespace {

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

}  // namespace

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

}  // namespace shard::layer_cuts
