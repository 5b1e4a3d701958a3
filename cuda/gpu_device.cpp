/// The GPU's part of the communicator. A GPU executes work later than the host launches it.

#include <fmt/format.h>

#include <list>
#include <optional>

#include "cuda/gpu_memory.hpp"
#include "cuda/host_staged.hpp"
#include "cuda/nccl/connections.hpp"
#include "cuda/ranges.hpp"
#include "cuda/success.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/books/products_by.hpp"
#include "engine/device/runtime/backend.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

namespace {

/// Gives a profiler a range for each step, and in it one for each operation. (LaunchIn gives it those of calls.)
class RangesOfSteps : public Observer {
 public:
  void section(const std::string& name, bool) override {
    step_.reset();  // before the next one begins
    step_.emplace(name);
  }
  void begins(const Operation& operation) override {
    operations_.emplace_back(operation.function, current_call_site());
  }
  void computed(const Operation&) override { operations_.pop_back(); }

 private:
  std::optional<cuda::TimeRange> step_;
  std::list<cuda::TimeRange> operations_;
};

}  // namespace

void set_up_device() {
  cuda::gpu();
  cuda::reserve_page_locked();
  if (cuda::has_ranges()) [[maybe_unused]]
    static auto* until_the_end = new Observation(*new RangesOfSteps);
}

std::unique_ptr<DataPlane> make_data_plane(const Group& group) {
  if (cuda::gpu().is_shared()) return std::make_unique<cuda::HostStaged>();
  return std::make_unique<cuda::NcclDataPlane>(group);
}

/// Tensors from the host are copied to the GPU now. A copy that began with the call's own work would wait for all
/// calls that the host has waited for since, and these may wait for this one.
std::unique_ptr<Awaited> enter_device(const Call& call) {
  cuda::data_on(cuda::gpu().computation(), call.tensor);
  if (call.request.into) cuda::data_on(cuda::gpu().computation(), std::as_const(*call.request.into));
  return std::make_unique<cuda::OperationEvents>();
}

void finish_device() {
  cuda::launch_ordered_messages();
  for (const auto& [work, stream] : cuda::streams()) cuda::finish(stream);
}

/// NCCL has buffers of its own: there the buffer of the closed forms is booked, and not allocated.
Tensor ring_buffer_of(Index elements) {
  if (cuda::gpu().is_shared()) return TensorMemory::buffer(elements);
  if (elements == 0) return TensorMemory::on({0}, nullptr);
  const auto bytes = elements * static_cast<Index>(sizeof(float));
  return TensorMemory::on({elements}, std::make_shared<cuda::GpuStorage>(bytes, Purpose::buffers, nullptr));
}

}  // namespace shard::runtime

namespace shard {

bool traffic_is_booked() {
  return !cuda::gpu().is_shared();
}

/// Of tensor cores no attribute says how much they do; and devices that share a GPU have no peak of their own.
std::optional<double> peak_of_products() {
  if (cuda::gpu().is_shared() || precision() != Precision::float32) return {};
  int device = 0, multiprocessors = 0, kilohertz = 0, major = 0, minor = 0;
  SHARDBOOK_CHECK(cudaGetDevice(&device));
  for (auto [value, attribute] : {std::pair{&multiprocessors, cudaDevAttrMultiProcessorCount},
                                  {&kilohertz, cudaDevAttrClockRate},
                                  {&major, cudaDevAttrComputeCapabilityMajor},
                                  {&minor, cudaDevAttrComputeCapabilityMinor}})
    SHARDBOOK_CHECK(cudaDeviceGetAttribute(value, attribute, device));
  // CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions": float32 of a multiprocessor in a cycle
  const int lanes = 10 * major + minor <= 80 ? 64 : 128;
  return 2.0 * lanes * multiprocessors * kilohertz * 1e3;
}

std::string products_by() {
  cuda::gpu();  // selects the GPU
  cudaDeviceProp properties{};
  int device = 0, version = 0;
  SHARDBOOK_CHECK(cudaGetDevice(&device));
  SHARDBOOK_CHECK(cudaGetDeviceProperties(&properties, device));
  SHARDBOOK_CHECK(cudaRuntimeGetVersion(&version));
  std::string text = fmt::format("{}, CUDA {}.{}", properties.name, version / 1000, version % 1000 / 10);
  if (const Index bytes = cuda::taken_by_nccl(); bytes > 0) {
    SHARDBOOK_CHECK(ncclGetVersion(&version));
    text += fmt::format(", beside NCCL {}.{}.{} with {} MiB of the GPU's memory for its buffers",
                        version / 10000, version / 100 % 100, version % 100, bytes >> 20);
  }
  return text;
}

}  // namespace shard
