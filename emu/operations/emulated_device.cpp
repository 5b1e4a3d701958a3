/// The emulated device's part of the communicator. It executes all work at once, without a stream.

#include "emu/slice_copies.hpp"
#include "engine/device/runtime/collective_bodies.hpp"

extern "C" void openblas_set_num_threads(int) __attribute__((weak));  // null with any other BLAS

namespace shard::runtime {

void set_up_device() {
  // One core for each device: if each device's BLAS used all cores, the devices would compete for them.
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
}

std::unique_ptr<DataPlane> make_data_plane(const Group&) {
  return nullptr;
}

std::unique_ptr<OnDevice> enter_device(const Call&) {
  return nullptr;
}

void finish_device() {}

Tensor ring_buffer_of(Index elements) {
  return TensorMemory::buffer(elements);
}

Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices) {
  return emu::packed(std::move(t), axis, slices);
}

}  // namespace shard::runtime

namespace shard {

bool traffic_is_booked() {
  return false;
}

}  // namespace shard
