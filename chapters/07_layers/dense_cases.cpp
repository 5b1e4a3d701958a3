#include "cases.hpp"
#include "linear.hpp"
#include "residual.hpp"

namespace shard::layer_cuts {

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

}  // namespace shard::layer_cuts
