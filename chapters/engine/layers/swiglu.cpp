#include "engine/layers/swiglu.hpp"

namespace shard {

Tensor swiglu(const Tensor& g, const Tensor& u, const Arithmetic& how) {
  return how.rounded(multiply(how.rounded(silu(g)), u));
}

void swiglu_backward(const Tensor& dh, Tensor& g, Tensor& u, const Arithmetic& how) {
  Tensor dg = how.rounded(silu_backward(multiply(std::move(u), dh), g));  // of act(g): dh u
  u = how.rounded(multiply(how.rounded(silu(std::move(g))), dh));         // du = dh act(g)
  g = std::move(dg);
}

}  // namespace shard
