#pragma once

/// A tensor: an array in the device's memory. (Part of device.hpp.)

#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/call_site.hpp"
#include "engine/device/error.hpp"
#include "engine/device/split.hpp"

namespace shard {

/// Extents of a tensor's axes, outermost first. A scalar has no axes.
using Shape = std::vector<Index>;

/// The number of elements, 1 for a scalar.
Index num_elements(std::span<const Index> extents);
/// "(2, 3)".
std::string to_string(const Shape& shape);
/// The index along each axis of the element with this number in row-major order.
Shape place_of(Index element, const Shape& shape);

enum class Purpose;  // what memory is for: books/ledger.hpp

/// A block of the device's memory, booked under a purpose. Each backend has its own.
class Storage;

/// A value that the device has begun to compute. The host waits for it where it reads it, by a conversion to T.
template <class T>
class Later {
 public:
  Later(T value) : read_([value = std::move(value)] { return value; }) {}
  explicit Later(std::function<T()> read) : read_(std::move(read)) {}
  operator T() const { return read_(); }

 private:
  std::function<T()> read_;
};

/// An owning, movable, row-major, N-dimensional array of float32 in the device's memory.
///
/// A tensor has no layout: the types in layouts.hpp say what the other devices hold. A moved-from tensor is empty
/// and has shape (0).
class Tensor {
 public:
  Tensor();
  /// A tensor of zeros. \throws Error argument when an extent is negative.
  explicit Tensor(Shape shape, SourceLine where = SourceLine::current());
  /// A tensor with undefined values. The caller must write every element.
  static Tensor uninitialized(Shape shape, SourceLine where = SourceLine::current());
  /// A tensor with these values, in row-major order.
  /// \throws Error argument when there are not as many values as the shape has elements.
  static Tensor from_host(Shape shape, std::span<const float> values,
                          SourceLine where = SourceLine::current());

  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  const Shape& shape() const { return storage_ == nullptr && shape_.empty() ? shape_of_nothing() : shape_; }
  int rank() const { return static_cast<int>(shape().size()); }
  Index size() const { return num_elements(shape()); }
  Index bytes() const { return size() * static_cast<Index>(sizeof(float)); }
  /// Extent of an axis. \throws Error argument when there is no such axis.
  Index extent(int axis, SourceLine where = SourceLine::current()) const;

  /// A copy, booked under the same purpose. This is the only way to copy a tensor.
  Tensor clone() const;
  /// The same elements under another shape of the same size. Consumes this tensor.
  Tensor reshaped(Shape shape, SourceLine where = SourceLine::current()) &&;
  /// Writes the elements [begin, end) along an axis from the host's memory, where they lie row-major.
  /// \throws Error argument for elements that the tensor does not have, or another number of values.
  void write(int axis, Index begin, Index end, std::span<const float> values,
             SourceLine where = SourceLine::current());
  /// Reads elements in row-major order, from `first` on, into the host's memory.
  /// \throws Error argument for elements that the tensor does not have.
  void read(Index first, std::span<float> values, SourceLine where = SourceLine::current()) const;
  /// All elements in row-major order, in the host's memory.
  std::vector<float> to_host() const;
  /// The same, as they are now, to be read later.
  Later<std::vector<float>> to_host_later() const;
  /// What tells tensors apart, as long as they live: the same for all tensors on one memory, null without elements.
  const void* memory() const { return storage_.get(); }
  /// Books the memory under another purpose from now on.
  void charge_to(Purpose purpose);

 private:
  friend class TensorMemory;  // gives backends access to the memory
  friend class Communicator;  // its calls share the memory of arguments that the caller keeps
  Tensor(Shape shape, std::shared_ptr<Storage> storage)
      : shape_(std::move(shape)), storage_(std::move(storage)) {}
  static const Shape& shape_of_nothing();

  Shape shape_;  // no extents and no storage mean (0), so that an empty tensor allocates nothing
  std::shared_ptr<Storage> storage_;  // shared only with a call in progress
};

/// Rows [begin, end) along axis 0 of a parameter, to be updated in place. The tensor must outlive them.
struct Rows {
  Tensor* tensor;
  Index begin;
  Index end;

  /// All rows.
  explicit Rows(Tensor& whole, SourceLine where = SourceLine::current())
      : Rows(whole, 0, whole.extent(0, where), where) {}
  /// \throws Error argument when the rows are not inside the tensor.
  Rows(Tensor& whole, Index first, Index last, SourceLine where = SourceLine::current());
  /// Shape of these rows.
  Shape shape() const;
};

/// Prints shape and elements in aligned rows. Leaves out the middle of long axes.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
}  // namespace shard
