#include "batch_norm.hpp"
#include "cases.hpp"
#include "layer_norm.hpp"
#include "rms_norm.hpp"

namespace shard::layer_cuts {

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

}  // namespace shard::layer_cuts
