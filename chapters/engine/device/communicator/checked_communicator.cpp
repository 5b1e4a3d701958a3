#include "engine/device/communicator/checked_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

namespace shard {

namespace {

/// A hash of the shape and the bytes.
Index fingerprint(const Tensor& t) {
  const std::vector<float> values = t.to_host();
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return static_cast<Index>(std::hash<std::string>()(to_string(t.shape())) ^
                            std::hash<std::string_view>()(bytes));
}

}  // namespace

/// Describes the first difference between the tensors of the members `majority` and `odd`. A collective.
std::string CheckedCommunicator::first_difference(const Tensor& t, int majority, int odd) {
  const auto a = static_cast<std::size_t>(majority), b = static_cast<std::size_t>(odd);
  const Tensor reference = broadcast_async(t.clone(), majority).get();
  const Shape shape = reference.shape(), odd_shape = broadcast_async(t.clone(), odd).get().shape();
  if (shape != odd_shape)
    return fmt::format("{} on device {}, and {} on device {}", to_string(odd_shape), members()[b],
                       to_string(shape), members()[a]);
  // Values are compared and exchanged as bit patterns, so that NaNs and zeros differ by their bits.
  const std::vector<float> expected = reference.to_host(), given = t.to_host();
  auto bits = [](float value) { return static_cast<Index>(std::bit_cast<std::int32_t>(value)); };
  const auto first =
      static_cast<std::size_t>(std::ranges::mismatch(expected, given, {}, bits, bits).in1 - expected.begin());
  const Index element = exchange("the first difference", static_cast<Index>(first))[b];
  const auto i = static_cast<std::size_t>(element);
  const Index value = exchange("the value that differs", i < given.size() ? bits(given[i]) : 0)[b];
  return fmt::format("{} at {} on device {}, and {} there on device {}",
                     std::bit_cast<float>(static_cast<std::int32_t>(value)),
                     to_string(place_of(element, shape)), members()[b], expected[i], members()[a]);
}

Future<CallResult> CheckedCommunicator::call(Request&& request) {
  if (request.function != Request::verify_replicated) return WrappedCommunicator::call(std::move(request));
  verify(request.tensor);
  return {};
}

void CheckedCommunicator::verify(const Tensor& t) {
  const std::vector<Index> prints = exchange("verification of a Replicated", fingerprint(t));
  auto occurrences = [&](Index print) { return std::ranges::count(prints, print); };
  const auto majority = std::ranges::max_element(prints, {}, occurrences);
  const auto odd = std::ranges::find_if(prints, [&](Index print) { return print != *majority; });
  if (odd == prints.end()) return;
  const std::string difference = first_difference(t, static_cast<int>(majority - prints.begin()),
                                                  static_cast<int>(odd - prints.begin()));
  throw FalseClaim(num_devices(), refusal_text("Replicated", "the same values on every device", difference));
}

}  // namespace shard
