#include "engine/device/communicator/checked_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace shard {

namespace {

/// FNV-1a over the shape and the bytes.
Index fingerprint(const Tensor& t) {
  std::uint64_t hash = 14695981039346656037ULL;
  auto add = [&](const void* data, std::size_t bytes) {
    const auto* b = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ b[i]) * 1099511628211ULL;
  };
  add(t.shape().data(), t.shape().size() * sizeof(Index));
  const std::vector<float> values = t.to_host();
  add(values.data(), values.size() * sizeof(float));
  Index result;
  std::memcpy(&result, &hash, sizeof result);
  return result;
}

/// A checked group that owns what it checks.
class CheckedPart : public CheckedCommunicator {
 public:
  explicit CheckedPart(std::unique_ptr<Communicator> part)
      : CheckedCommunicator(*part), part_(std::move(part)) {}

 private:
  std::unique_ptr<Communicator> part_;
};

}  // namespace

/// All members call this when fingerprints differ: the member `alike` holds what most hold, and `odd` is the
/// first that does not. \returns what differs first, on every member.
std::string CheckedCommunicator::first_difference(const Tensor& t, int alike, int odd) {
  const auto a = static_cast<std::size_t>(alike), b = static_cast<std::size_t>(odd);
  const Tensor most = broadcast_async(t.clone(), alike).get();
  const Shape usual = most.shape(), rare = broadcast_async(t.clone(), odd).get().shape();
  if (usual != rare)
    return fmt::format("{} on device {}, and {} on device {}", to_string(rare), members()[b],
                       to_string(usual), members()[a]);
  // Bits are compared, and told to all, as numbers.
  const std::vector<float> expected = most.to_host(), given = t.to_host();
  auto bits = [](float value) { return static_cast<Index>(std::bit_cast<std::int32_t>(value)); };
  const auto first =
      static_cast<std::size_t>(std::ranges::mismatch(expected, given, {}, bits, bits).in1 - expected.begin());
  const Index element = exchange("the first difference", static_cast<Index>(first))[b];
  const auto i = static_cast<std::size_t>(element);
  const Index value = exchange("the value that differs", i < given.size() ? bits(given[i]) : 0)[b];
  return fmt::format("{} at {} on device {}, and {} there on device {}",
                     std::bit_cast<float>(static_cast<std::int32_t>(value)),
                     to_string(place_of(element, usual)), members()[b], expected[i], members()[a]);
}

Future<CallResult> CheckedCommunicator::call(Request&& request) {
  if (request.function != Request::verify_replicated) return WrappedCommunicator::call(std::move(request));
  verify(request.tensor);
  return {};
}

void CheckedCommunicator::verify(const Tensor& t) {
  const std::vector<Index> prints = exchange("verification of a Replicated", fingerprint(t));
  auto how_many = [&](Index print) { return std::ranges::count(prints, print); };
  const auto alike = std::ranges::max_element(prints, {}, how_many);
  const auto odd = std::ranges::find_if(prints, [&](Index print) { return print != *alike; });
  if (odd == prints.end()) return;
  const std::string difference =
      first_difference(t, static_cast<int>(alike - prints.begin()), static_cast<int>(odd - prints.begin()));
  throw FalseClaim(num_devices(), refusal_text("Replicated", "the same values on every device", difference));
}

std::unique_ptr<Communicator> CheckedCommunicator::wrap(std::unique_ptr<Communicator> part) {
  return std::make_unique<CheckedPart>(std::move(part));
}

}  // namespace shard
