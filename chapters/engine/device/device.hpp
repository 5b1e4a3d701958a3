#pragma once

/// What a device is: its tensors, the operations on them, and its way to the other devices.
///
/// Declared and documented once, here; implemented twice, as two libraries with the same symbols: emu/ (a
/// process on the CPU) and cuda/ (a GPU). A chapter is compiled once and linked against one of them. One
/// process is one device.

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

/// Extents of a tensor's axes, outermost first. No axes at all is a scalar.
using Shape = std::vector<Index>;

/// The number of elements, 1 for a scalar.
Index num_elements(const Shape& shape);
/// "(2, 3)".
std::string to_string(const Shape& shape);

/// \name Tensors
/// @{

/// A block of the device's memory, charged to a purpose. What is in it is the backend's affair.
class Storage;

/// An owning, movable, row-major, N-dimensional array of float32 in the device's memory.
///
/// Says nothing about other devices: the types in layouts.hpp do. Moving leaves an empty tensor, shape (0).
class Tensor {
 public:
  Tensor() = default;
  /// Zeros. \throws Error argument when an extent is negative.
  explicit Tensor(Shape shape);
  /// Memory that is about to be written, so that zeroing it would be wasted.
  static Tensor uninitialized(Shape shape);
  /// The values in row-major order. \throws Error argument when their number is not the shape's.
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

  /// A copy, charged to the same purpose. Copies are never made silently.
  Tensor clone() const;
  /// The same elements under another shape of the same size. Consumes this tensor.
  Tensor reshaped(Shape shape) &&;
  /// All elements in row-major order, in the host's memory.
  std::vector<float> to_host() const;
  /// Books the memory under another purpose from now on.
  void charge_to(Purpose purpose);

 private:
  friend class TensorMemory;  // the one door through which a backend reaches the memory
  Tensor(Shape shape, std::shared_ptr<Storage> storage)
      : shape_(std::move(shape)), storage_(std::move(storage)) {}

  Shape shape_{0};
  std::shared_ptr<Storage> storage_;  // shared only with a future that still needs it
};

/// Rows [begin, end) along axis 0 of a parameter, to be updated in place. Lives no longer than the tensor.
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

/// Prints shape and elements, rows aligned, the middle of long axes left out.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
/// @}

/// \name Operations
/// Each returns a value; one that can reuse an argument's memory consumes that argument (`Tensor&&`).
/// All throw Error argument when shapes do not fit. Shapes are written at each.
/// @{

/// A matrix as it lies, or transposed: how a product reads it. Lives no longer than the tensor it names.
struct Operand {
  const Tensor* tensor;
  bool is_transposed = false;

  Operand(const Tensor& matrix, bool transpose = false) : tensor(&matrix), is_transposed(transpose) {}
};
inline Operand transposed(const Tensor& matrix) {
  return {matrix, true};
}

/// How matrix products round their operands; sums are float32 in each. Bits of the significand: 24, 11, 8.
enum class Precision { float32, tf32, bf16 };
/// Of this device's products from now on. float32, unless it is told otherwise.
void set_precision(Precision precision);
Precision precision();

/// (m, k) times (k, n): (m, n). No operand is copied to transpose it.
Tensor matmul(Operand a, Operand b);
/// c += a b, in place: how gradients are accumulated.
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
/// Copies `values`, of the rows' shape, into these rows.
void assign(Rows rows, const Tensor& values);
/// Tensors one behind the other along `axis`; their other extents are equal.
Tensor concatenate(std::span<const Tensor* const> parts, int axis);

/// Sum of squares, accumulated in float64.
double sum_of_squares(const Tensor& t);
/// Whether no element is a NaN or an infinity.
bool all_finite(const Tensor& t);

/// factor * (output - target), in the memory of `target`: the gradient of a squared error.
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
/// w <- ((w - g) mod 5) - 2, mod in 0..4: integers stay small integers, so several steps stay exact.
void integer_update(Rows w, const Tensor& g);
/// @}

/// \name Operations by rows, on matrices: what a router and its mixture of experts need
/// Each row of the result depends on one or a few rows of the arguments: on a GPU, one thread or one block a
/// row. Indices lie in the host's memory, and are checked: Error argument for one that is not there.
/// @{

/// exp(z) / Σ exp(z) of each row, in the memory of z. The largest element of a row is subtracted first.
Tensor softmax(Tensor&& z);
/// dz = p ⊙ (dp − Σ p dp), the sum over the row, in the memory of dp. p is softmax's result.
Tensor softmax_backward(Tensor&& dp, const Tensor& p);
/// t (m, n) with `row` (n) added to each row, in the memory of t.
Tensor add_to_rows(Tensor&& t, std::span<const float> row);
/// The columns of the k largest elements of each row of t (m, n), largest first; of equal ones the lower
/// column comes first. m k columns, row by row.
std::vector<Index> top_k(const Tensor& t, Index k);

/// From each row of t (m, n) the elements in k columns: (m, k). `columns` as top_k gives them.
Tensor take_columns(const Tensor& t, std::span<const Index> columns, Index k);
/// The reverse: values (m, k) in these columns, which differ within a row, of a matrix (m, n) that else is 0.
Tensor put_columns(const Tensor& values, std::span<const Index> columns, Index n);

/// Row i of the result is row at[i] of t.
Tensor gather_rows(const Tensor& t, std::span<const Index> at);
/// The reverse: row i of `rows` becomes row at[i] of `into`. The at[i] differ; other rows stay as they are.
void scatter_rows(const Tensor& rows, std::span<const Index> at, Tensor& into);
/// Row i times element at[i], in row-major order, of `factors`; in the memory of the rows.
Tensor scale_rows(Tensor&& rows, const Tensor& factors, std::span<const Index> at);

/// A slot that holds nothing.
inline constexpr Index no_slot = -1;
/// Row i of the result is Σ_r weights(i, r) · rows[slots(i, r)], r ascending; no_slot adds nothing. weights
/// is (m, k), `slots` m k indices row by row. rows (n, d) gives (m, d).
Tensor combine_rows(const Tensor& rows, std::span<const Index> slots, const Tensor& weights);
/// The same with all weights 1, k slots a row.
Tensor combine_rows(const Tensor& rows, std::span<const Index> slots, Index k);
/// Element (i, r) of the result is the dot product of row i of t (m, d) and row slots(i, r) of rows (n, d),
/// or 0 for no_slot: the gradient of combine_rows by its weights. (m, k)
Tensor dot_rows(const Tensor& t, const Tensor& rows, std::span<const Index> slots, Index k);
/// @}

/// \name Collectives
/// @{

/// How addends are combined. Typed calls always mean `sum`.
enum class ReduceOp { sum, avg, max, min, prod };
std::string_view name(ReduceOp op);

/// Work in progress on the communication stream. The backend derives its own.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Advances the stream; true when this call is done.
  virtual bool test() = 0;
  /// Returns when this call is done.
  virtual void wait() = 0;
  /// What the call returns, once it is done.
  virtual Tensor take_result() = 0;
  /// Somebody has let go of the future without waiting.
  virtual void dropped() noexcept = 0;
};

/// The result of an asynchronous call. Waiting twice is harmless; dropping it unwaited is reported, and the
/// operation still completes, since the future shares the buffers.
template <class T = void>
class Future {
 public:
  using Finish = std::function<T(Tensor)>;

  /// Of no call: done, with an empty result.
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

  /// Whether the call is done. Advances it a little.
  bool ready() { return !pending_ || pending_->test(); }
  /// Waits, and hands out the result (once, where there is one).
  T get() {
    if (!pending_) return T();
    std::shared_ptr<Pending> awaited = std::move(pending_);
    awaited->wait();
    return finish_(awaited->take_result());
  }
  /// Waits. For calls without a result.
  void wait() requires std::is_void_v<T> { get(); }
  /// The same call, its result passed through `next`: how a typed future is made of a plain one.
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

/// A group of devices, in order, and this device's way to the others in it: the world of all devices of a job,
/// or a part of it that `split` made. Inside a group its members are counted from 0; `members()` says which
/// devices of the job they are.
///
/// Every call but the sends and receives is collective: all members make the same calls in the same order, or
/// each of them gets Error mismatch naming who called what. Collectives of several groups take place on each
/// device in the order in which it started them, so that order must be the same on all devices: those that
/// face each other crosswise get Error deadlock.
///
/// Calls that take `Tensor&&` may work in its memory. Slices may differ in size and be empty. Calls on an
/// axis that is not there, or on shapes that do not fit, throw Error argument.
class Communicator {
 public:
  virtual ~Communicator() = default;

  /// This device's place in the group, 0 to num_devices() - 1.
  virtual int device_id() const = 0;
  virtual int num_devices() const = 0;
  /// The members by their ids in the job, in the group's order. An error names devices so.
  virtual const std::vector<int>& members() const = 0;
  /// What tells this group from the others that this device is in; 0 is the world. The ledger books by it.
  virtual Index group_id() const = 0;
  /// The members that pass the same color, as a group, in the order of their keys, and of equal keys in this
  /// group's order; no color: none, and no group is returned. A collective (MPI 4.0, section 7.4.2).
  virtual std::unique_ptr<Communicator> split(std::optional<Index> color, Index key) = 0;

  /// Returns when every device has reached it.
  virtual void barrier() = 0;
  /// Blocking rendezvous: returns when the receiver has it. \throws Error argument for a send to oneself.
  virtual void send(int dest_id, const Tensor& t) = 0;
  virtual Tensor receive(int src_id) = 0;

  /// Messages that are posted and waited for later; not collective. Between two devices the k-th send, posted
  /// or not, belongs to the k-th receive. The future of a send is done when the message has left, which is at
  /// the latest when its receive has been posted; it holds `t` until it is waited for. The receiver knows the
  /// shape: another one is Error mismatch, thrown where it waits.
  virtual Future<> post_send(int dest_id, Tensor&& t) = 0;
  virtual Future<Tensor> post_receive(int src_id, const Shape& shape) = 0;

  /// Collective: the k-th calls on the devices belong together. Copies my `src` into the `dst` of
  /// `target_device_id` (no target: I send nothing). Targets are distinct. Done when my `src` may be reused
  /// and, if somebody targeted me, my `dst` is filled. `src` and `dst` are different tensors; shapes agree.
  virtual Future<> send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id) = 0;

  /// The slices of all devices one behind the other along `axis`, in device order. Mine is consumed, or kept.
  virtual Future<Tensor> all_gather_async(Tensor&& slice, int axis) = 0;
  virtual Future<Tensor> all_gather_async(const Tensor& slice, int axis) = 0;
  /// All devices' tensors combined, on every device. Works in the argument's memory.
  virtual Future<Tensor> all_reduce_async(Tensor&& t, ReduceOp op) = 0;
  /// Each device's part, along `axis`, of all devices' tensors combined.
  virtual Future<Tensor> reduce_scatter_async(Tensor&& t, ReduceOp op, int axis) = 0;
  /// Part k of `t` along `split_axis` goes to device k; what arrives is put together along `concat_axis`, in
  /// device order. Parts follow the rule of split.hpp.
  virtual Future<Tensor> all_to_all_async(Tensor&& t, int split_axis, int concat_axis) = 0;
  /// The same along one axis with part sizes of my choice: counts[k] of my slices go to device k.
  virtual Future<Tensor> all_to_all_async(Tensor&& t, const std::vector<Index>& counts, int axis) = 0;
  /// The root's tensor, on every device. What others pass is ignored.
  virtual Future<Tensor> broadcast_async(Tensor&& t, int root) = 0;

  /// Returns when every call that this device has started is done.
  virtual void synchronize() = 0;
  /// Uncounted control message: every device's number, in device order.
  virtual std::vector<Index> exchange(const char* what, Index mine) = 0;
  /// Uncounted control message: everybody's text, on device 0 in device order; elsewhere nothing.
  virtual std::vector<std::string> gather(const char* what, const std::string& mine) = 0;
  /// Somebody claims that all members hold this tensor. Believed here; a checked run verifies it
  /// (checked_communicator.hpp).
  virtual void verify_replicated(const Tensor& t) = 0;
};

/// "{4, 1, 3}": a group as errors name it; nothing for the world.
std::string name_of_group(const Communicator& group);

/// Prints "device D: TITLE TENSOR" for one device of the group after another. A collective: device 0 writes.
void print_in_device_order(Communicator& group, std::ostream& out, const std::string& title,
                           const Tensor& tensor);

/// A program of many devices: starts this process's device, runs `body` with the group of all devices, and
/// returns its exit code, the largest of all devices. An Error ends every device with its code and one line;
/// so does any other exception.
int run_on_devices(int& argc, char**& argv, const std::function<int(Communicator& world)>& body);
/// Whether bytes and messages are booked from closed forms (NCCL) and not counted as they are sent.
bool traffic_is_booked();
/// @}

}  // namespace shard
