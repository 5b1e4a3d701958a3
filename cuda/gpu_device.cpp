/// The GPU as the communicator sees it: it runs behind its host.

#include "cuda/gpu_memory.hpp"
#include "cuda/nccl_communicators.hpp"
#include "engine/device/runtime/collective_bodies.hpp"

namespace shard::runtime {

void set_up_device() {
  cuda::gpu();
  if (control().num_devices() > 1) cuda::make_wire_to_all();
}

std::unique_ptr<OnDevice> enter_device() {
  return std::make_unique<cuda::Passage>();
}

void finish_device() {
  for (cudaStream_t queue : cuda::queues()) cuda::finish(queue);
}

bool leaves_out(Index) {
  return false;  // mistakes are planted in the emulator
}

/// NCCL has buffers of its own. Booked is what the ring takes that the closed forms speak of; nothing is
/// allocated.
Tensor ring_buffer_of(Index elements) {
  if (elements == 0) return TensorMemory::on({0}, nullptr);
  const auto bytes = elements * static_cast<Index>(sizeof(float));
  return TensorMemory::on({elements}, std::make_shared<Storage>(bytes, Purpose::buffers, nullptr));
}

}  // namespace shard::runtime
