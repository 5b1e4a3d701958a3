/// The emulated device's part of the communicator. It executes all work at once, without a stream.

#include "emu/products/products.hpp"
#include "emu/slice_copies.hpp"
#include "engine/device/books/products_by.hpp"
#include "engine/device/runtime/backend.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

void set_up_device() {}

std::unique_ptr<DataPlane> make_data_plane(const Group&) {
  return nullptr;
}

std::unique_ptr<Awaited> enter_device(const Call&) {
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

std::string products_by() {
  return emu::about_products();
}

std::optional<double> peak_of_products() {
  return {};
}

}  // namespace shard
