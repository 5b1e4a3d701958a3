// mistakes CASE: makes one mistake with CUDA, cuBLAS or NCCL. The test double must end the program.

#include "mistakes.hpp"

using namespace shard;

float* memory(std::size_t elements) {
  void* data;
  cudaMalloc(&data, elements * sizeof(float));
  return static_cast<float*>(data);
}
cudaStream_t queue() {
  cudaStream_t made;
  cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  return made;
}
void clear(float* data, cudaStream_t in) {
  cudaMemsetAsync(data, 0, 8 * sizeof(float), in);
}

int main(int argc, char** argv) {
  const std::string name = argc == 2 ? argv[1] : "";
  if (const auto named = mistakes_at_start.find(name); named != mistakes_at_start.end()) named->second();
  return run_on_devices(argc, argv, [&](Communicator& world) {
    group().set_inner(world);
    if (mistakes_at_start.contains(name)) return 0;
    for (const Cases& cases :
         {mistakes_in_queues, mistakes_in_groups, mistakes_in_order, mistakes_in_library})
      if (const auto named = cases.find(name); named != cases.end()) {
        named->second();
        return 0;
      }
    throw Error(Code::usage, "expected a case");
  });
}
