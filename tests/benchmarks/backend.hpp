#pragma once

/// What a benchmark needs of a backend beside device.hpp. emu_*.cpp and cuda_*.cpp each define it.

#include <memory>
#include <optional>

#include "tests/benchmarks/bench.hpp"

namespace shard::bench {

/// What products are made with: "OpenBLAS 0.3.21 ...", "NVIDIA H200, CUDA 13.0, ...".
std::string libraries();
/// On how many devices the bars hold.
int devices_of_bars();
/// Networks that chapters are measured on unless told otherwise.
std::vector<Network> default_networks();
/// Precisions of products that chapters are measured in.
std::vector<Precision> precisions();

/// What a chapter's step cannot do without.
class Floor {
 public:
  virtual ~Floor() = default;
  /// Before each run, outside its time.
  virtual void prepare() {}
  /// Returns when the device has done it all. A collective.
  virtual void run() = 0;
};
/// Hears of what this device does, so that the floor of it can be made.
class Recorder {
 public:
  virtual ~Recorder() = default;
  /// What an engine whose steps are to be heard of is made with, in place of the group itself.
  virtual Communicator& group() = 0;
  /// Of what `step` does: on the CPU its products and messages, on a GPU its products. Runs it once. A
  /// collective. The recorder outlives the floor.
  virtual std::unique_ptr<Floor> floor_of(const std::function<void()>& step) = 0;
};
/// A collective. The group outlives the recorder.
std::unique_ptr<Recorder> make_recorder(Communicator& group);
/// The share of the floor's speed that chapter `number` has to reach on this network; none: no bar.
std::optional<double> least_share(const std::string& number, const Network& network, Precision precision);

/// So many that an optimizer finds nothing of them in a cache, as after the backward pass of a large network.
Index parameters_of_optimizers();
/// A copy as the backend's library makes it, of tensors of one size. The GPU may still be at work when this
/// returns: Communicator::synchronize waits for it.
void copy(Tensor& to, const Tensor& from);
/// The share of that copy's bandwidth that Adam has to reach.
double least_share_of_adam();

}  // namespace shard::bench
