#pragma once

/// What cases are made of: small numbers, whose sums are exact, and the closed forms of what is sent.

#include "claims.hpp"
#include "engine/device/books/collective_costs.hpp"
#include "engine/workloads/exact_values.hpp"

namespace shard::layer_cuts {

// Sizes that nothing divides. Of some there are fewer than eight.
inline constexpr Index rows = 7, features = 10, hidden = 6, outputs = 5;

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
inline HostTensor numbers(const std::string& name, Shape shape, float scale = 1) {
  HostTensor t = exact::integers(std::move(shape), CounterRandom(7, name), -2, 1, 2 * scale);
  for (float& value : t.values) value += scale;
  return t;
}
/// 1, 3, 5 and 7: no sum of them is 0.
inline HostTensor positive(const std::string& name, Shape shape) {
  HostTensor t = numbers(name, std::move(shape));
  for (float& value : t.values) value += 4;
  return t;
}
/// ±1.
inline HostTensor signs(const std::string& name, Shape shape) {
  HostTensor t = exact::integers(std::move(shape), CounterRandom(7, name), 0, 1, 2);
  for (float& value : t.values) value -= 1;
  return t;
}
/// Tokens of a vocabulary, 0 among them, in a column.
inline HostTensor tokens(const std::string& name, Index count, Index vocabulary) {
  return exact::integers({count, 1}, CounterRandom(7, name), 0, static_cast<int>(vocabulary) - 1);
}
/// @}

/// \name What a device sends
/// @{
inline Form nothing() {
  return [](int, int) { return Traffic{}; };
}
/// An all-reduce of `elements` numbers.
inline Form reduced(Index elements) {
  return [=](int n, int me) { return ring_all_reduce(elements, n, me); };
}
/// An all-gather along an axis of this extent, with `of_one` numbers for each index; and a reduce-scatter.
inline Form gathered(Index extent, Index of_one) {
  return [=](int n, int me) { return ring_all_gather(slices(extent, of_one, n), me); };
}
inline Form scattered(Index extent, Index of_one) {
  return [=](int n, int me) { return ring_reduce_scatter(slices(extent, of_one, n), me); };
}
/// A row of `width` numbers to each neighbour.
inline Form halo(Index length, Index width) {
  return [=](int n, int me) {
    const Range mine = part(length, n, me);
    if (mine.size() == 0) return Traffic{};
    const Index neighbours = (mine.begin > 0 ? 1 : 0) + (mine.end < length ? 1 : 0);
    return Traffic{neighbours, neighbours * width * bytes_per_element};
  };
}
/// Two tensors to the next device, and two to the one before.
inline Form passed_on(Index elements) {
  return [=](int n, int me) {
    const Index sends = 2 * ((me + 1 < n ? 1 : 0) + (me > 0 ? 1 : 0));
    return Traffic{sends, sends * elements * bytes_per_element};
  };
}
inline Form operator+(const Form& a, const Form& b) {
  return [=](int n, int me) { return a(n, me) + b(n, me); };
}
inline Form operator*(int times, const Form& form) {
  return [=](int n, int me) { return times * form(n, me); };
}
/// @}

}  // namespace shard::layer_cuts
