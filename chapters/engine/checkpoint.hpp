#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// Named parameters, which are read in slices. A device that needs a part never builds the whole parameter.
///
/// Where they come from: a file (files/file_checkpoint.hpp), a folder that another library has written
/// (files/model_folder.hpp), a generator of initial values (workloads/initial_values.hpp), or the host's
/// memory (host_checkpoint.hpp).
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  /// All parameter names, sorted.
  virtual std::vector<std::string> names() const = 0;
  virtual bool contains(const std::string& name) const = 0;
  /// \throws Error file when there is no such parameter.
  virtual Shape shape(const std::string& name) const = 0;
  /// Where the parameters come from, for messages.
  virtual std::string source() const = 0;

  /// Elements [begin, end) along `axis`, row-major, on the host. Reads just those bytes of a file, or
  /// generates them. \throws Error file when the parameter is missing or the file cannot be read; argument
  /// for a bad range
  std::vector<float> read(const std::string& name, int axis, Index begin, Index end) const;
  /// The same on the device, charged to parameters.
  Tensor slice(const std::string& name, int axis, Index begin, Index end) const;
  /// The part that has these indices of each dimension. Reads a slice along the first dimension that is cut,
  /// and cuts that along the others.
  virtual Tensor part(const std::string& name, const std::vector<Range>& ranges) const;
  Tensor whole(const std::string& name) const { return slice(name, 0, 0, shape(name).at(0)); }

 private:
  /// What `read` returns. The parameter is there, and has the range.
  virtual std::vector<float> values(const std::string& name, int axis, Index begin, Index end) const = 0;
};

/// What checkpoints need to read slices.
namespace checkpoint {

/// \throws Error file: `source` has no parameter of that name
[[noreturn]] void refuse_unknown(const std::string& source, const std::string& name);

/// Calls visit(global index) for every element of a slice, in row-major order.
template <class Visit>
void for_each_in_slice(const Shape& shape, int axis, Index begin, Index end, const Visit& visit) {
  Index inner = 1;
  for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  const Index extent = shape[static_cast<std::size_t>(axis)];
  const Index outer = extent * inner == 0 ? 0 : num_elements(shape) / (extent * inner);
  for (Index o = 0; o < outer; ++o)
    for (Index i = (o * extent + begin) * inner; i < (o * extent + end) * inner; ++i) visit(i);
}

}  // namespace checkpoint

}  // namespace shard
