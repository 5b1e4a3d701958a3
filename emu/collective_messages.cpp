#include "emu/collective_messages.hpp"

#include "emu/arrays.hpp"

namespace shard::emu {

void combine(std::span<float> accumulator, std::span<const float> addend, ReduceOp op) {
  auto a = flat(accumulator);
  auto b = flat(addend);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      xt::noalias(a) += b;
      break;
    case ReduceOp::max:
      xt::noalias(a) = xt::maximum(a, b);
      break;
    case ReduceOp::min:
      xt::noalias(a) = xt::minimum(a, b);
      break;
    case ReduceOp::prod:
      xt::noalias(a) *= b;
      break;
  }
}

void finish_average(std::span<float> sum, ReduceOp op, int devices) {
  if (op == ReduceOp::avg) xt::noalias(flat(sum)) /= static_cast<float>(devices);
}

}  // namespace shard::emu
