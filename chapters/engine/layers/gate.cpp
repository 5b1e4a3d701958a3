#include "engine/layers/gate.hpp"

namespace shard {

namespace {

/// act(z), in the memory of z if it is an rvalue.
template <class T>
Tensor activation(T&& z, Gate gate) {
  return gate == Gate::gelu ? gelu(std::forward<T>(z)) : silu(std::forward<T>(z));
}
Tensor activation_backward(Tensor dh, const Tensor& z, Gate gate) {
  return gate == Gate::gelu ? gelu_backward(std::move(dh), z) : silu_backward(std::move(dh), z);
}

}  // namespace

Tensor gated(const Tensor& g, const Tensor& u, Gate gate, const Arithmetic& how) {
  return how.rounded(multiply(how.rounded(activation(g, gate)), u));
}

void gated_backward(const Tensor& dh, Tensor& g, Tensor& u, Gate gate, const Arithmetic& how) {
  Tensor dg = how.rounded(activation_backward(multiply(std::move(u), dh), g, gate));  // of act(g): dh u
  u = how.rounded(multiply(how.rounded(activation(std::move(g), gate)), dh));         // du = dh act(g)
  g = std::move(dg);
}

}  // namespace shard
