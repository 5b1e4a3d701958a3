#include "engine/device/checked_communicator.hpp"

#include <fmt/format.h>

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

void CheckedCommunicator::do_verify_replicated(const Tensor& t) {
  const std::vector<Index> prints = exchange("verification of a Replicated", fingerprint(t));
  for (std::size_t d = 1; d < prints.size(); ++d)
    if (prints[d] != prints[0])
      refuse(Code::mismatch, "Replicated", "the same values on every device",
             fmt::format("{} here, and device {} holds other values or another shape than device {}",
                         to_string(t.shape()), members()[d], members()[0]));
}

std::unique_ptr<Communicator> CheckedCommunicator::wrap(std::unique_ptr<Communicator> part) {
  return std::make_unique<CheckedPart>(std::move(part));
}

}  // namespace shard
