#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/tensor.hpp"

namespace shard {

struct HostTensor;  // basics/ranges.hpp

/// Named parameters, which are read in slices. A device that needs a part never builds the whole parameter.
///
/// Where they come from: a file (files/safetensors/safetensors.hpp), a folder that another library has written
/// (files/model_folder.hpp), a generator of initial values (workloads/initial_values.hpp), or the host's
/// memory (host_checkpoint).
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

  /// The elements of a part, row-major, on the host. Reads just those bytes of a file, or generates them.
  /// \throws Error file when the parameter is missing or the file cannot be read; argument for a bad range
  std::vector<float> read(const std::string& name, const Ranges& part) const;
  /// The elements with indices [begin, end) along `axis`, and all indices of the other axes.
  std::vector<float> read(const std::string& name, int axis, Index begin, Index end) const;
  using Take = std::function<void(const Ranges& piece, std::span<const float> values)>;
  /// Reads a part piece by piece, and gives each piece to `take`. A piece has at most 256 KiB, or is one
  /// index of the outermost axis if that is larger.
  void read_in_pieces(const std::string& name, const Ranges& part, const Take& take) const;
  /// The axis that varies slowest where the parameter is stored. It is not 0 for a matrix that is stored
  /// transposed.
  virtual int outermost_axis(const std::string&) const { return 0; }
  /// Loads a part on the device and books its memory as parameters. The host holds one piece at a time.
  Tensor slices(const std::string& name, const Ranges& ranges) const;
  Tensor slice(const std::string& name, int axis, Index begin, Index end) const;
  Tensor whole(const std::string& name) const;

 protected:
  /// \throws Error file: there is no parameter of that name, but others like it
  [[noreturn]] void refuse_unknown(const std::string& name) const;
  /// Called with what `slices` would read, where tensors have no elements.
  virtual void pass_over(const std::string& /*name*/, const Ranges& /*part*/) const {}

 private:
  /// Implements `read`. The parameter exists and has these indices.
  virtual std::vector<float> values(const std::string& name, const Ranges& part) const = 0;
};

/// A checkpoint whose parameters are known from the beginning.
class ListedCheckpoint : public Checkpoint {
 public:
  std::vector<std::string> names() const override;
  bool contains(const std::string& name) const override { return shapes_.contains(name); }
  Shape shape(const std::string& name) const override;
  std::string source() const override { return source_; }

 protected:
  ListedCheckpoint(std::map<std::string, Shape> shapes, std::string source)
      : shapes_(std::move(shapes)), source_(std::move(source)) {}
  /// The shapes of parameters whose descriptions have a member `shape`.
  template <class Described>
  static std::map<std::string, Shape> shapes_of(const std::map<std::string, Described>& parameters) {
    std::map<std::string, Shape> shapes;
    for (const auto& [name, described] : parameters) shapes[name] = described.shape;
    return shapes;
  }

 private:
  std::map<std::string, Shape> shapes_;
  std::string source_;
};

/// Parameters in the host's memory, such as those of an exact problem. `source` names them in messages.
std::unique_ptr<Checkpoint> host_checkpoint(std::map<std::string, HostTensor> tensors, std::string source);

}  // namespace shard
