#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/workloads/model.hpp"

namespace shard {

/// Named parameters, read a slice at a time: no device ever builds the whole of what it holds a part of.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  /// All parameter names, sorted.
  virtual std::vector<std::string> names() const = 0;
  virtual bool contains(const std::string& name) const = 0;
  /// \throws Error file when there is no such parameter.
  virtual Shape shape(const std::string& name) const = 0;
  /// Elements [begin, end) along `axis`, charged to parameters. Reads just those bytes of a file, or
  /// generates them. \throws Error file when the parameter is missing or the file cannot be read; argument
  /// for a bad range
  virtual Tensor slice(const std::string& name, int axis, Index begin, Index end) const = 0;
  /// Where the parameters come from, for messages.
  virtual std::string source() const = 0;

  Tensor whole(const std::string& name) const { return slice(name, 0, 0, shape(name).at(0)); }
};

/// The parameters of a safetensors file, float32 (or F64, F16, BF16, converted).
/// \throws Error file when it is missing, unreadable or malformed; slices: not_finite for a NaN or an
/// infinity
std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path);

/// Initial values from a counter-based generator, keyed by seed, parameter name and global index: every
/// layout starts from the same model. Uniform in ±sqrt(6 / rows) for a layer after a ReLU (He et al. 2015,
/// eq. 10), ±sqrt(3 / rows) for the others, which keep the variance as it is. A model with experts is a
/// mixture.
std::unique_ptr<Checkpoint> generate_checkpoint(const Model& model, std::uint64_t seed);

/// Parameters that already lie in the host's memory: small integers of the exact mode, or a batch.
struct HostTensor;
std::unique_ptr<Checkpoint> host_checkpoint(std::map<std::string, HostTensor> tensors, std::string source);

}  // namespace shard
