#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/success.hpp"
#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

int devices_of_bars() {
  return 1;
}

std::vector<Network> default_networks() {
  return {{8192, 4096, 16384}};
}

std::vector<Precision> precisions() {
  return {Precision::float32, Precision::tf32, Precision::bf16};
}

// What an H200 reached, less 5 % (docs/cuda_profiling.md §3).
std::optional<double> least_share(const std::string& number, const Network& n, Precision p) {
  if (number != "01" || n != Network{8192, 4096, 16384}) return {};
  if (p == Precision::bf16) return 0.81;
  return p == Precision::tf32 ? 0.91 : 0.94;
}

Index parameters_of_optimizers() {
  return Index{64} << 20;
}

void copy(Tensor& to, const Tensor& from) {
  SHARDBOOK_CHECK(cudaMemcpyAsync(TensorMemory::data(to), TensorMemory::data(from),
                                  static_cast<std::size_t>(from.bytes()), cudaMemcpyDeviceToDevice,
                                  cuda::gpu().computation()));
}

double least_share_of_adam() {
  return 0.90;
}

}  // namespace shard::bench
