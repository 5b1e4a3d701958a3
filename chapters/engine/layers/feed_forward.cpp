#include "engine/layers/feed_forward.hpp"

namespace shard {

namespace {

/// act(z), in the memory of z if it is an rvalue.
template <class T>
Tensor activation(T&& z, Hidden hidden) {
  return hidden == Hidden::geglu ? gelu(std::forward<T>(z)) : silu(std::forward<T>(z));
}
Tensor activation_backward(Tensor dh, const Tensor& z, Hidden hidden) {
  return hidden == Hidden::geglu ? gelu_backward(std::move(dh), z) : silu_backward(std::move(dh), z);
}

}  // namespace

Tensor gated(const Tensor& g, const Tensor& u, Hidden hidden, const Arithmetic& how) {
  return how.rounded(multiply(how.rounded(activation(g, hidden)), u));
}

void gated_backward(const Tensor& dh, Tensor& g, Tensor& u, Hidden hidden, const Arithmetic& how) {
  Tensor dg = how.rounded(activation_backward(multiply(std::move(u), dh), g, hidden));  // of act(g): dh u
  u = how.rounded(multiply(how.rounded(activation(std::move(g), hidden)), dh));         // du = dh act(g)
  g = std::move(dg);
}

}  // namespace shard
