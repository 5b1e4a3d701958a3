#pragma once

/// What a device is: its tensors, the operations on them, and its way to the other devices.
///
/// This header declares and documents the interface. Two libraries with the same symbols implement it: in
/// emu/, a device is a process on the CPU; in cuda/, it is a GPU. A chapter is compiled once and linked with
/// one of the two. One process drives one device.

#include <exception>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/error.hpp"
#include "engine/device/ledger.hpp"
#include "engine/device/split.hpp"

namespace shard {

/// Extents of a tensor's axes, outermost first. A scalar has no axes.
using Shape = std::vector<Index>;

/// The number of elements, 1 for a scalar.
Index num_elements(const Shape& shape);
/// "(2, 3)".
std::string to_string(const Shape& shape);

/// \name Tensors
/// @{

/// A block of the device's memory, charged to a purpose. Each backend defines what it consists of.
class Storage;

/// An owning, movable, row-major, N-dimensional array of float32 in the device's memory.
///
/// A tensor does not know what other devices hold; the types in layouts.hpp do. A tensor that was moved from
/// is empty and has shape (0).
class Tensor {
 public:
  Tensor() = default;
  /// A tensor of zeros. \throws Error argument when an extent is negative.
  explicit Tensor(Shape shape);
  /// A tensor without defined values, for a caller that writes every element next.
  static Tensor uninitialized(Shape shape);
  /// A tensor with these values, in row-major order.
  /// \throws Error argument when there are not as many values as the shape has elements.
  static Tensor from_host(Shape shape, std::span<const float> values);

  Tensor(Tensor&& other) noexcept
      : shape_(std::exchange(other.shape_, Shape{0})), storage_(std::move(other.storage_)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    shape_ = std::exchange(other.shape_, Shape{0});
    storage_ = std::move(other.storage_);
    return *this;
  }

  const Shape& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  Index size() const { return num_elements(shape_); }
  Index bytes() const { return size() * static_cast<Index>(sizeof(float)); }
  /// Extent of an axis. \throws Error argument when there is no such axis.
  Index extent(int axis) const;

  /// A copy, charged to the same purpose. This is the only way to copy a tensor.
  Tensor clone() const;
  /// The same elements under another shape of the same size. Consumes this tensor.
  Tensor reshaped(Shape shape) &&;
  /// All elements in row-major order, in the host's memory.
  std::vector<float> to_host() const;
  /// Books the memory under another purpose from now on.
  void charge_to(Purpose purpose);

 private:
  friend class TensorMemory;  // through it a backend reaches the memory
  Tensor(Shape shape, std::shared_ptr<Storage> storage)
      : shape_(std::move(shape)), storage_(std::move(storage)) {}

  Shape shape_{0};
  std::shared_ptr<Storage> storage_;  // shared only with a future that still needs it
};

/// Rows [begin, end) along axis 0 of a parameter, to be updated in place. The tensor must outlive them.
struct Rows {
  Tensor* tensor;
  Index begin;
  Index end;

  /// All rows.
  explicit Rows(Tensor& whole) : Rows(whole, 0, whole.extent(0)) {}
  /// \throws Error argument when the rows are not inside the tensor.
  Rows(Tensor& whole, Index first, Index last);
  /// Shape of these rows.
  Shape shape() const;
};

/// Prints shape and elements in aligned rows. Leaves out the middle of long axes.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
/// @}

/// \name Operations
/// Most return a new tensor. An operation that can reuse an argument's memory consumes it (`Tensor&&`).
/// All throw Error argument when shapes do not fit. Each comment gives the shapes.
/// @{

/// A matrix that a product reads as it is, or transposed. The tensor must outlive it.
struct Operand {
  const Tensor* tensor;
  bool is_transposed = false;

  Operand(const Tensor& matrix, bool transpose = false) : tensor(&matrix), is_transposed(transpose) {}
};
inline Operand transposed(const Tensor& matrix) {
  return {matrix, true};
}

/// How matrix products round their operands, to 24, 11 or 8 bits of significand. They add in float32 always.
enum class Precision { float32, tf32, bf16 };
/// Sets the precision of this device's products from now on. Until the first call it is float32.
void set_precision(Precision precision);
Precision precision();

/// The product of (m, k) and (k, n), of shape (m, n). A transposed operand is not copied.
Tensor matmul(Operand a, Operand b);
/// c += a b, in place. Engines accumulate gradients with it.
void matmul_accumulate(Operand a, Operand b, Tensor& c);

/// max(z, 0), same shape.
Tensor relu(const Tensor& z);
Tensor relu(Tensor&& z);
/// dz = dh where z > 0, else 0 (the derivative at 0 is 0). z may be ReLU's argument or its result.
Tensor relu_backward(Tensor&& dh, const Tensor& z);

/// Elementwise, same shapes.
Tensor add(Tensor&& a, const Tensor& b);
Tensor subtract(Tensor&& a, const Tensor& b);
Tensor multiply(Tensor&& a, const Tensor& b);
/// Every element times `factor`.
Tensor scale(Tensor&& a, float factor);

/// Elements [begin, end) along `axis`, as a new tensor.
Tensor slice(const Tensor& t, int axis, Index begin, Index end);
/// Copies `values` into these rows. `values` has the rows' shape.
void assign(Rows rows, const Tensor& values);
/// Joins tensors one behind the other along `axis`. Their other extents are equal.
Tensor concatenate(std::span<const Tensor* const> parts, int axis);

/// Sum of squares, accumulated in float64.
double sum_of_squares(const Tensor& t);
/// Whether no element is a NaN or an infinity.
bool all_finite(const Tensor& t);

/// factor * (output - target), the gradient of a squared error, in the memory of `target`.
Tensor scaled_difference(const Tensor& output, Tensor&& target, float factor);

/// w -= rate * g. `g` has the shape of the rows.
void sgd_update(Rows w, const Tensor& g, float rate);
/// One step of Adam (Kingma and Ba 2015, algorithm 1) with bias correction; m and v have the rows' shape.
struct AdamSettings {
  float rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
};
void adam_update(Rows w, const Tensor& g, Tensor& m, Tensor& v, const AdamSettings& settings, Index step);
/// w <- ((w - g) mod 5) - 2, where mod gives 0..4. Small integers stay small integers, so sums stay exact in
/// several steps.
void integer_update(Rows w, const Tensor& g);
/// @}

/// \name Operations by rows, on matrices: what a router and its mixture of experts need
/// Each row of the result depends on one or a few rows of the arguments, so a GPU gives a row to one thread
/// or one block. Indices lie in the host's memory. All functions check them and throw Error argument for one
/// that is out of range.
/// @{

/// exp(z) / Σ exp(z) of each row, in the memory of z. The largest element of a row is subtracted first.
Tensor softmax(Tensor&& z);
/// dz = p ⊙ (dp − Σ p dp), the sum over the row, in the memory of dp. p is softmax's result.
Tensor softmax_backward(Tensor&& dp, const Tensor& p);
/// t (m, n) with `row` (n) added to each row, in the memory of t.
Tensor add_to_rows(Tensor&& t, std::span<const float> row);
/// The columns of the k largest elements of each row of t (m, n), largest first; of equal elements, the one
/// in the lower column comes first. Returns m k columns, row by row.
std::vector<Index> top_k(const Tensor& t, Index k);

/// Takes from each row of t (m, n) the elements in k columns, (m, k). `columns` is as top_k returns it.
Tensor take_columns(const Tensor& t, std::span<const Index> columns, Index k);
/// The reverse of take_columns: a matrix (m, n) with `values` (m, k) in these columns and 0 elsewhere. The
/// columns of one row differ.
Tensor put_columns(const Tensor& values, std::span<const Index> columns, Index n);

/// Row i of the result is row at[i] of t.
Tensor gather_rows(const Tensor& t, std::span<const Index> at);
/// The reverse of gather_rows: copies row i of `rows` to row at[i] of `into`. The at[i] differ. Other rows
/// stay as they are.
void scatter_rows(const Tensor& rows, std::span<const Index> at, Tensor& into);
/// Multiplies row i by element at[i] of `factors`, counted in row-major order. Works in the rows' memory.
Tensor scale_rows(Tensor&& rows, const Tensor& factors, std::span<const Index> at);

/// Stands for "no slot" in a list of slots.
inline constexpr Index no_slot = -1;
/// Row i of the result is Σ_r weights(i, r) · rows[slots(i, r)], r ascending; no_slot adds nothing. `weights`
/// is (m, k), `slots` has m k indices, row by row, and `rows` is (n, d). The result is (m, d).
Tensor combine_rows(const Tensor& rows, std::span<const Index> slots, const Tensor& weights);
/// The same, with k slots for each row and every weight 1.
Tensor combine_rows(const Tensor& rows, std::span<const Index> slots, Index k);
/// The gradient of combine_rows with respect to its weights, (m, k). Element (i, r) is the dot product of row
/// i of t (m, d) and row slots(i, r) of rows (n, d), or 0 for no_slot.
Tensor dot_rows(const Tensor& t, const Tensor& rows, std::span<const Index> slots, Index k);
/// @}

/// \name Collectives
/// @{

/// How addends are combined. Collectives on layouts always use `sum`.
enum class ReduceOp { sum, avg, max, min, prod };
std::string_view name(ReduceOp op);

/// A call in progress on the communication stream. Each backend derives its own class from this one.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Lets the stream go on. Returns true when this call is done.
  virtual bool test() = 0;
  /// Returns when this call is done.
  virtual void wait() = 0;
  /// The result of the call, once it is done.
  virtual Tensor take_result() = 0;
  /// Called when a future is destroyed before anybody waited for it.
  virtual void dropped() noexcept = 0;
};

/// The result of an asynchronous call. Waiting twice is harmless. A future that is destroyed before anybody
/// waited for it is reported; its operation still completes, since the future shares the buffers.
template <class T = void>
class Future {
 public:
  using Finish = std::function<T(Tensor)>;

  /// A future that belongs to no call. It is done, and its result is empty.
  Future() = default;
  Future(std::shared_ptr<Pending> pending, Finish finish)
      : pending_(std::move(pending)), finish_(std::move(finish)) {}
  Future(Future&&) noexcept = default;
  Future& operator=(Future&& other) noexcept {
    report_if_dropped();
    pending_ = std::move(other.pending_);
    finish_ = std::move(other.finish_);
    return *this;
  }
  ~Future() { report_if_dropped(); }

  /// Whether the call is done. Also lets it go on as far as it can without waiting.
  bool ready() { return !pending_ || pending_->test(); }
  /// Waits and returns the result. The first call returns it; later calls return an empty value.
  T get() {
    if (!pending_) return T();
    std::shared_ptr<Pending> awaited = std::move(pending_);
    awaited->wait();
    return finish_(awaited->take_result());
  }
  /// Waits for a call that has no result.
  void wait() requires std::is_void_v<T> { get(); }
  /// A future of the same call whose result is passed through `next`. This makes a future of a layout from a
  /// future of a tensor.
  template <class Next>
  auto then(Next next) && {
    using U = decltype(next(std::declval<T>()));
    return Future<U>(std::move(pending_), [finish = std::move(finish_), next = std::move(next)](Tensor t) {
      return next(finish(std::move(t)));
    });
  }

 private:
  void report_if_dropped() noexcept {
    if (pending_ && std::uncaught_exceptions() == 0) pending_->dropped();
  }

  std::shared_ptr<Pending> pending_;
  Finish finish_;
};

/// An ordered group of devices. Through it, this device communicates with the other members. The world is the
/// group of all devices of a job; `split` makes smaller groups. In a group, members are counted from 0;
/// `members()` tells which devices of the job they are.
///
/// Every call but the sends and receives is collective: all members make the same calls in the same order. If
/// they do not, each of them gets Error mismatch, which names who called what. A device runs the collectives
/// of all its groups in the order in which it started them. If two devices start collectives of two groups in
/// opposite orders, each waits for the other, and both get Error deadlock.
///
/// Calls that take `Tensor&&` may work in its memory. Slices may differ in size and be empty. A call on an
/// axis that does not exist, or on shapes that do not fit, throws Error argument.
class Communicator {
 public:
  virtual ~Communicator() = default;

  /// This device's place in the group, 0 to num_devices() - 1.
  virtual int device_id() const = 0;
  virtual int num_devices() const = 0;
  /// The members by their ids in the job, in the group's order. Errors name devices by these ids.
  virtual const std::vector<int>& members() const = 0;
  /// A number that differs for each group that this device is in; the world has 0. The ledger books by it.
  virtual Index group_id() const = 0;
  /// Makes a group of all members that pass the same color. They are ordered by their keys, and members with
  /// equal keys as in this group. A member that passes no color gets no group. A collective (MPI 4.0, section
  /// 7.4.2).
  virtual std::unique_ptr<Communicator> split(std::optional<Index> color, Index key) = 0;

  /// Returns when every member has called it.
  virtual void barrier() = 0;
  /// Sends, and returns when the receiver has the message. \throws Error argument for a send to oneself.
  virtual void send(int dest_id, const Tensor& t) = 0;
  virtual Tensor receive(int src_id) = 0;

  /// Posts a message, to be waited for later; not collective. Between two devices, the k-th send belongs to
  /// the k-th receive, whether they are posted or blocking. The future of a send is done when the message has
  /// left, at the latest when its receive has been posted. It holds `t` until somebody waits for it. The
  /// receiver says which shape it expects, and gets Error mismatch when it waits if another one arrives.
  virtual Future<> post_send(int dest_id, Tensor&& t) = 0;
  virtual Future<Tensor> post_receive(int src_id, const Shape& shape) = 0;

  /// A collective: the k-th calls of all members belong together. Copies this device's `src` into the `dst`
  /// of `target_device_id`; a device without a target sends nothing. No two devices have the same target. The
  /// future is done when `src` may be reused and, if another device targets this one, `dst` is filled. `src`
  /// and `dst` are different tensors of one shape.
  virtual Future<> send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id) = 0;

  /// The slices of all devices, joined along `axis` in device order. The first form consumes this device's
  /// slice, the second keeps it.
  virtual Future<Tensor> all_gather_async(Tensor&& slice, int axis) = 0;
  virtual Future<Tensor> all_gather_async(const Tensor& slice, int axis) = 0;
  /// Combines all devices' tensors, and returns the result on every device. Works in the argument's memory.
  virtual Future<Tensor> all_reduce_async(Tensor&& t, ReduceOp op) = 0;
  /// Combines all devices' tensors, and returns this device's part of the result along `axis`.
  virtual Future<Tensor> reduce_scatter_async(Tensor&& t, ReduceOp op, int axis) = 0;
  /// Sends part k of `t` along `split_axis` to device k, and joins the parts that arrive along `concat_axis`,
  /// in device order. Parts follow the rule of split.hpp.
  virtual Future<Tensor> all_to_all_async(Tensor&& t, int split_axis, int concat_axis) = 0;
  /// The same along one axis, with parts whose sizes the caller chooses: counts[k] indices of the axis go to
  /// device k.
  virtual Future<Tensor> all_to_all_async(Tensor&& t, const std::vector<Index>& counts, int axis) = 0;
  /// Returns the root's tensor on every device. The tensors that other devices pass are ignored.
  virtual Future<Tensor> broadcast_async(Tensor&& t, int root) = 0;

  /// Returns when every call that this device has started is done.
  virtual void synchronize() = 0;
  /// Every device's number, in device order. A control message, which the ledger does not count.
  virtual std::vector<Index> exchange(const char* what, Index mine) = 0;
  /// Returns all devices' texts on device 0, in device order, and nothing on the others. A control message,
  /// which the ledger does not count.
  virtual std::vector<std::string> gather(const char* what, const std::string& mine) = 0;
  /// Called when an engine claims that all members hold this tensor. A plain communicator believes the claim;
  /// a checked run verifies it (checked_communicator.hpp).
  virtual void verify_replicated(const Tensor& t) = 0;
};

/// The group as errors name it: "{4, 1, 3}", and an empty text for the world.
std::string name_of_group(const Communicator& group);

/// Prints "device D: TITLE TENSOR" for each device of the group, in order. A collective; device 0 writes.
void print_in_device_order(Communicator& group, std::ostream& out, const std::string& title,
                           const Tensor& tensor);

/// Runs a program on many devices: starts this process's device and calls `body` with the group of all
/// devices. Returns the largest exit code of all devices. An Error, or any other exception, ends every device
/// with its code and one line.
int run_on_devices(int& argc, char**& argv, const std::function<int(Communicator& world)>& body);
/// Whether bytes and messages are booked from closed forms, as with NCCL, which does not tell what it sends;
/// else they are counted as they are sent.
bool traffic_is_booked();
/// @}

}  // namespace shard
