#pragma once

/// What benchmarks need of a backend beside device.hpp. emu_*.cpp and cuda_*.cpp each define it.

#include <memory>
#include <optional>

#include "tests/benchmarks/bench.hpp"

namespace shard::bench {

/// The number of devices for which limits are set.
int devices_of_bars();
/// The networks of chapters' benchmarks, unless others are named.
std::vector<Network> default_networks();
/// The precisions of products in chapters' benchmarks.
std::vector<Precision> precisions();

/// The least work of a chapter's step.
class Floor {
 public:
  virtual ~Floor() = default;
  /// Called before each run, outside the measured time.
  virtual void prepare() {}
  /// Does the work, and returns when the device has done it. A collective.
  virtual void run() = 0;
  /// The library that makes its products; empty: the chapter's.
  virtual std::string products_by() const { return {}; }
};
/// Records what this device does, to make a floor of it.
class Recorder {
 public:
  virtual ~Recorder() = default;
  /// The group for engines whose steps are recorded, in place of the group itself.
  virtual Communicator& group() = 0;
  /// The floor of `step`, which runs once: on the CPU its products and messages, on a GPU its products. A
  /// collective. The recorder must outlive the floor.
  virtual std::unique_ptr<Floor> floor_of(const std::function<void()>& step) = 0;
};
/// A collective. The group must outlive the recorder.
std::unique_ptr<Recorder> make_recorder(Communicator& group);
/// The least part of the floor's speed for chapter `number` on this network; none: no limit.
std::optional<double> least_share(const std::string& number, const Network& network, Precision precision);

/// A number of parameters too large for caches, as after the backward pass of a large network.
Index parameters_of_optimizers();
/// The backend's own copy, of tensors of one size. The GPU may still be working when it returns:
/// Communicator::synchronize waits for it.
void copy(Tensor& to, const Tensor& from);
/// The least part of that copy's bandwidth for Adam.
double least_share_of_adam();

}  // namespace shard::bench
