#pragma once

/// A device: its tensors, the operations on them, and its communication with other devices.
///
/// This header declares the interface. Several libraries with the same symbols implement it: a device is a
/// process on the CPU (emu/), one of many in a process (emu/local/, emu/meta/), or a GPU with a process of its
/// own (cuda/). A chapter is compiled once and linked with one of them.

#include <exception>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/operations.hpp"

namespace shard {

/// \name Collectives
/// @{

/// The operation of a reduction. Collectives on layouts always use `sum`.
enum class ReduceOp { sum, avg, max, min, prod };
std::string_view name(ReduceOp op);

/// The functions of a communicator. The ledger books what those up to broadcast send; those up to post_receive are
/// counted: errors give the call's number. What each function is: runtime/collectives/collectives.hpp.
enum class Collective {
  barrier,
  send,
  send_async,
  all_gather,
  all_reduce,
  reduce_scatter,
  all_to_all,
  broadcast,
  receive,
  post_send,
  post_receive,
  split,
  synchronize,
  exchange,
  gather,
  gather_for_all,
  verify_replicated
};
inline constexpr int num_collectives = static_cast<int>(Collective::broadcast) + 1;
std::string_view name(Collective collective);

class Communicator;

/// One call of a communicator, with its arguments. Each function fills the fields that it needs.
struct Request {
  using Function = Collective;
  using enum Collective;

  Function function = barrier;
  Tensor tensor = {};               ///< the argument
  bool is_shared = false;           ///< the caller keeps the argument, so the call must not write to it
  std::optional<Tensor> into = {};  ///< `dst` of send_async, on the same memory
  std::optional<ReduceOp> op = {};
  std::optional<int> axis = {};  ///< of all_to_all: the split axis
  std::optional<int> concat_axis = {};
  std::optional<int> peer = {};       ///< the other device of a message, or a broadcast's root
  std::optional<Shape> arrives = {};  ///< the shape of the result, if the caller knows it
  std::optional<std::vector<Index>> counts = {};
  std::optional<Index> color = {};  ///< of a split
  Index number = 0;                 ///< the number of an exchange, the key of a split
  std::string what = {};            ///< the subject of an exchange or a gather
  std::string text = {};            ///< of a gather
  SourceLine where = {};            ///< the line that made the call
  Shape shape = {};                 ///< of the argument, before the call works in its memory
  Index call = 0;                   ///< the call's number among this device's calls
  Index event = -1;                 ///< the number by which a recorder knows the call; -1 without one

  bool is_counted() const { return function <= post_receive; }
  /// The collective under which the ledger books the call's messages.
  Collective collective() const;
  /// "all_gather"; an exchange or a gather also has its subject.
  std::string name() const;
  /// "all_gather of (2, 3) along axis 1". `members`: the ids in the job, by which errors name devices.
  std::string describe(const std::vector<int>& members) const;
};
/// "call 3 at FILE:LINE"; of a call that is not counted, "after call 3, at FILE:LINE". Without a line that is not known.
std::string place_of_call(Index number, SourceLine where, bool is_counted = true);

/// The result of a call.
struct CallResult {
  Tensor tensor = {};
  std::vector<Index> numbers = {};               ///< of an exchange
  std::vector<std::string> texts = {};           ///< of a gather
  std::unique_ptr<Communicator> part = nullptr;  ///< of a split
};

/// A call in progress, as its future uses it.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Advances the stream. Returns true when this call is done.
  virtual bool test() = 0;
  /// Returns when this call is done.
  virtual void wait() = 0;
  /// The result of the call, once it is done.
  virtual CallResult take_result() = 0;
  /// Called when a future is destroyed before anybody waited for it.
  virtual void dropped() noexcept = 0;
};

/// The result of an asynchronous call. Waiting twice is harmless. A future that is destroyed before anybody
/// waited for it is reported; its operation still completes, since the future shares the buffers.
template <class T = void>
class [[nodiscard(
    "a future: .get() or .wait() waits for the call, and its memory is needed until then")]] Future {
 public:
  using Finish = std::function<T(CallResult)>;

  /// A future that belongs to no call. It is done, and its result is empty.
  Future() = default;
  Future(std::shared_ptr<Pending> pending, Finish finish)
      : pending_(std::move(pending)), finish_(std::move(finish)) {}
  Future(Future &&) noexcept = default;
  Future& operator=(Future&& other) noexcept {
    report_if_dropped();
    pending_ = std::move(other.pending_);
    finish_ = std::move(other.finish_);
    return *this;
  }
  ~Future() {
    report_if_dropped();
  }

  /// Whether the call is done. Also advances it as far as possible without waiting.
  bool ready(SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    return !pending_ || pending_->test();
  }
  /// Waits and returns the result. The first call returns it; later calls return an empty value.
  T get(SourceLine where = SourceLine::current()) {
    const CallSite call(where);
    if (!pending_) return T();
    std::shared_ptr<Pending> awaited = std::move(pending_);
    awaited->wait();
    return finish_(awaited->take_result());
  }
  /// Waits for a call that has no result.
  void wait(SourceLine where = SourceLine::current()) requires std::is_void_v<T> {
    get(where);
  }
  /// A future whose result is `next` of this one's. It turns a future of a tensor into one of a layout.
  template <class Next>
  auto then(Next next)&& {
    using U = decltype(next(std::declval<T>()));
    return Future<U>(std::move(pending_), [finish = std::move(finish_), next = std::move(next)](
                                              CallResult result) { return next(finish(std::move(result))); });
  }

 private:
  void report_if_dropped() noexcept {
    if (pending_ && std::uncaught_exceptions() == 0) pending_->dropped();
  }

  std::shared_ptr<Pending> pending_;
  Finish finish_;
};

/// An ordered group of devices, through which this device communicates with the other members. The world is the
/// group of all devices of a job; `split` makes smaller groups. Members are numbered from 0 in a group;
/// `members()` has their ids in the job.
///
/// Every call except sends and receives is collective: all members make the same calls in the same order. If
/// they do not, each of them gets Error mismatch, which says who called what. A device runs the collectives
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
  /// The members' ids in the job, in the group's order. Errors name devices by these ids.
  virtual const std::vector<int>& members() const = 0;
  /// The group's id: 0 for the world, and another one for each group of this device. The ledger books by it.
  virtual Index group_id() const = 0;
  /// Makes a group of all members that pass the same color. They are ordered by their keys, and members with
  /// equal keys as in this group. A member that passes no color gets no group. A collective (MPI 4.0, section
  /// 7.4.2).
  std::unique_ptr<Communicator> split(std::optional<Index> color, Index key,
                                      SourceLine where = SourceLine::current());

  /// Returns when every member has called it.
  void barrier(SourceLine where = SourceLine::current());
  /// Sends, and returns when the receiver has the message. \throws Error argument for a send to oneself.
  void send(int dest_id, const Tensor& t, SourceLine where = SourceLine::current());
  Tensor receive(int src_id, SourceLine where = SourceLine::current());

  /// Nonblocking send and receive; not collective. Between two devices, the k-th send matches the k-th receive,
  /// whether they are nonblocking or blocking. The future of a send is done at the latest when its receive has
  /// been posted, and keeps the memory of `t` until it is waited for. The receiver gives the shape that it
  /// expects. If another shape arrives, the wait throws Error mismatch.
  Future<> post_send(int dest_id, Tensor&& t, SourceLine where = SourceLine::current());
  Future<Tensor> post_receive(int src_id, const Shape& shape, SourceLine where = SourceLine::current());

  /// A collective. Copies this device's `src` into the `dst` of `target_device_id`; a device without a target
  /// sends nothing. No two devices have the same target. The
  /// future is done when `src` may be reused and, if another device targets this one, `dst` is filled. `src`
  /// and `dst` are different tensors of one shape.
  Future<> send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id,
                      SourceLine where = SourceLine::current());

  /// The slices of all devices, joined along `axis` in device order. The first form consumes this device's
  /// slice, the second keeps it. With the shape of the `whole`, the result is allocated when the call starts;
  /// without it, when the other devices' extents have arrived.
  Future<Tensor> all_gather_async(Tensor&& slice, int axis, const std::optional<Shape>& whole = std::nullopt,
                                  SourceLine where = SourceLine::current());
  Future<Tensor> all_gather_async(const Tensor& slice, int axis,
                                  const std::optional<Shape>& whole = std::nullopt,
                                  SourceLine where = SourceLine::current());
  /// Reduces all devices' tensors, and returns the result on every device. Works in the argument's memory.
  Future<Tensor> all_reduce_async(Tensor&& t, ReduceOp op, SourceLine where = SourceLine::current());
  /// Reduces all devices' tensors, and returns this device's part of the result along `axis`.
  Future<Tensor> reduce_scatter_async(Tensor&& t, ReduceOp op, int axis,
                                      SourceLine where = SourceLine::current());
  /// Sends part k of `t` along `split_axis` to device k, and joins the parts that arrive along `concat_axis`,
  /// in device order. Parts follow the rule of split.hpp.
  Future<Tensor> all_to_all_async(Tensor&& t, int split_axis, int concat_axis,
                                  SourceLine where = SourceLine::current());
  /// The same along one axis, with parts of any size: counts[k] indices of the axis go to device k.
  Future<Tensor> all_to_all_async(Tensor&& t, const std::vector<Index>& counts, int axis,
                                  SourceLine where = SourceLine::current());
  /// Returns the root's tensor on every device. The tensors that other devices pass are ignored.
  Future<Tensor> broadcast_async(Tensor&& t, int root, SourceLine where = SourceLine::current());

  /// Returns when all calls that this device has started are done.
  void synchronize(SourceLine where = SourceLine::current());
  /// Returns every device's number, in device order. A control message, which the ledger does not count.
  std::vector<Index> exchange(const char* what, Index mine, SourceLine where = SourceLine::current());
  /// Returns all devices' texts on device 0, in device order, and nothing on the others. A control message,
  /// which the ledger does not count.
  std::vector<std::string> gather(const char* what, const std::string& mine,
                                  SourceLine where = SourceLine::current());
  /// The same, but on every device.
  std::vector<std::string> gather_for_all(const char* what, const std::string& mine,
                                          SourceLine where = SourceLine::current());
  /// Called when an engine claims that all members hold this tensor. A plain communicator believes the claim;
  /// a checked run verifies it (checked_communicator.hpp).
  void verify_replicated(const Tensor& t, SourceLine where = SourceLine::current());

  /// Makes a call: every function above calls it. A wrapper of a communicator overrides only this function.
  virtual Future<CallResult> call(Request&& request) = 0;

 private:
  /// Stores the function and the caller's line in the request, and makes the call.
  Future<CallResult> ask(Request::Function function, SourceLine where, Request&& request);
  /// A second tensor on the same memory.
  static Tensor share(const Tensor& t) { return Tensor(t.shape_, t.storage_); }
};

/// The future of a call that is done.
Future<CallResult> done(CallResult result);

/// Prints "device D: TITLE TENSOR" for each device of the group, in order. A collective; device 0 writes.
void print_in_device_order(Communicator& group, std::ostream& out, const std::string& title,
                           const Tensor& tensor, SourceLine where = SourceLine::current());

/// Runs a program on many devices: calls `body` on each device of this process with the group of all devices.
/// `body` returns an exit code, 0 to 125. Returns the largest exit code of all devices. An exception ends the
/// whole job with its exit code (internal, unless it is an Error) and one line. Call it once in a program.
int run_on_devices(int& argc, char**& argv, const std::function<int(Communicator& world)>& body);
/// Switches the agreement of all_reduce and reduce_scatter on or off: whether members first compare their calls.
/// It is on at first. Without it, devices that make different calls hang or compute wrong numbers. Set it on all
/// devices before the same call. The other collectives always agree, since members need one another's numbers.
void set_agreement(bool is_on);
/// Whether bytes and messages are booked from closed forms, since NCCL does not report what it sends. Otherwise
/// each message is counted.
bool traffic_is_booked();
/// Whether all devices of a job are in this process.
bool devices_share_a_process();
/// "emu", "local", "meta" or "cuda".
std::string_view backend();
/// @}

}  // namespace shard
