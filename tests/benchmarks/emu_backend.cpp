#include <cstring>

#include "emu/operations/host_memory.hpp"
#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

int devices_of_bars() {
  return 2;
}

std::vector<Network> default_networks() {
  return {{64, 256, 1024}, {256, 512, 2048}};
}

std::vector<Precision> precisions() {
  return {Precision::float32};
}

std::optional<double> least_share(const std::string& number, const Network& n, Precision) {
  if (number == "08") return n == Network{512, 512, 1408} ? std::optional(0.92) : std::nullopt;
  if (n == Network{64, 256, 1024}) return 0.8;
  if (n == Network{256, 512, 2048}) return 0.9;
  return {};
}

Index parameters_of_optimizers() {
  return Index{4} << 20;
}

void copy(Tensor& to, const Tensor& from) {
  std::memcpy(TensorMemory::data(to), TensorMemory::data(from), static_cast<std::size_t>(from.bytes()));
}

double least_share_of_adam() {
  return 0.7;
}

}  // namespace shard::bench
