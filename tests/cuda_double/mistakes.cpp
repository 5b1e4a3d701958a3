// mistakes CASE: makes one mistake with CUDA, cuBLAS or NCCL. The test double must end the program.

#include "mistakes.hpp"

#include <cstdlib>

float* memory(std::size_t elements) {
  void* data;
  cudaMalloc(&data, elements * sizeof(float));
  return static_cast<float*>(data);
}
cudaStream_t new_stream() {
  cudaStream_t made;
  cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  return made;
}
void clear(float* data, cudaStream_t in) {
  cudaMemsetAsync(data, 0, 8 * sizeof(float), in);
}

int main(int argc, char** argv) {
  setenv("CUDA_DOUBLE_PATIENCE", "3", 0);  // seconds to wait for a missing message
  return shard::testing::run_cases(argc, argv, {mistakes_in_streams, mistakes_in_groups, mistakes_in_library},
                                   shard::testing::Reporters::each_device);
}
