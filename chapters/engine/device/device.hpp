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
#include <string>
#include <utility>
#include <vector>

#include "engine/device/layer_operations.hpp"

namespace shard {

/// \name Collectives
/// @{

/// How addends are combined. Collectives on layouts always use `sum`.
enum class ReduceOp { sum, avg, max, min, prod };
std::string_view name(ReduceOp op);

class Communicator;

/// One call of a group, as a value. The functions of Communicator fill what the call needs.
struct Request {
  /// Up to post_receive, a device counts its calls, and errors name them by their numbers. Those up to
  /// broadcast have the order of Collective.
  enum Function {
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

  Function function = barrier;
  Tensor tensor = {};               ///< the argument
  bool is_shared = false;           ///< the caller keeps the argument: nobody writes to its memory
  std::optional<Tensor> into = {};  ///< of send_async: shares the memory of `dst`
  ReduceOp op = ReduceOp::sum;
  int axis = 0;  ///< of an all_to_all: the one that is split
  int concat_axis = 0;
  std::optional<int> peer = {};       ///< the other device of a message, or a broadcast's root
  std::optional<Shape> arrives = {};  ///< the shape that the caller expects
  std::optional<std::vector<Index>> counts = {};
  std::optional<Index> color = {};  ///< of a split
  Index number = 0;                 ///< of an exchange; a split's key
  std::string what = {};            ///< of an exchange or a gather: what it is about
  std::string text = {};            ///< of a gather
  SourceLine where = {};            ///< the line that made the call
  Shape shape = {};                 ///< of the argument, when the call began
  Index call = 0;                   ///< the call's number among this device's calls

  bool is_counted() const { return function <= post_receive; }
  /// What the ledger books the call's messages as.
  Collective collective() const {
    return function <= broadcast ? static_cast<Collective>(function) : Collective::send;
  }
  /// "all_gather", or what an exchange is for.
  std::string name() const;
  /// "all_gather of (2, 3) along axis 1". Errors name devices of the job, which `members` are.
  std::string describe(const std::vector<int>& members) const;
};
std::string_view name(Request::Function function);
/// "call 3 at FILE:LINE", or "call 3" where the line is not known.
std::string place_of_call(Index number, SourceLine where);

/// What a call gives back.
struct CallResult {
  Tensor tensor = {};
  std::vector<Index> numbers = {};               ///< of an exchange
  std::vector<std::string> texts = {};           ///< of a gather
  std::unique_ptr<Communicator> part = nullptr;  ///< of a split
};

/// A call in progress on the communication stream, as its future sees it.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Lets the stream go on. Returns true when this call is done.
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

  /// Whether the call is done. Also lets it go on as far as it can without waiting.
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
  /// A future of the same call whose result is passed through `next`. This makes a future of a layout from a
  /// future of a tensor.
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
  std::unique_ptr<Communicator> split(std::optional<Index> color, Index key,
                                      SourceLine where = SourceLine::current());

  /// Returns when every member has called it.
  void barrier(SourceLine where = SourceLine::current());
  /// Sends, and returns when the receiver has the message. \throws Error argument for a send to oneself.
  void send(int dest_id, const Tensor& t, SourceLine where = SourceLine::current());
  Tensor receive(int src_id, SourceLine where = SourceLine::current());

  /// Posts a message, to be waited for later; not collective. Between two devices, the k-th send belongs to
  /// the k-th receive, whether they are posted or blocking. The future of a send is done when the message has
  /// left, at the latest when its receive has been posted. It holds `t` until somebody waits for it. The
  /// receiver says which shape it expects, and gets Error mismatch when it waits if another one arrives.
  Future<> post_send(int dest_id, Tensor&& t, SourceLine where = SourceLine::current());
  Future<Tensor> post_receive(int src_id, const Shape& shape, SourceLine where = SourceLine::current());

  /// A collective: the k-th calls of all members belong together. Copies this device's `src` into the `dst`
  /// of `target_device_id`; a device without a target sends nothing. No two devices have the same target. The
  /// future is done when `src` may be reused and, if another device targets this one, `dst` is filled. `src`
  /// and `dst` are different tensors of one shape.
  Future<> send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id,
                      SourceLine where = SourceLine::current());

  /// The slices of all devices, joined along `axis` in device order. The first form consumes this device's
  /// slice, the second keeps it. A caller that knows the shape of the whole may say it. Then memory for it is
  /// held from the call on, and not from some time on.
  Future<Tensor> all_gather_async(Tensor&& slice, int axis, const std::optional<Shape>& whole = std::nullopt,
                                  SourceLine where = SourceLine::current());
  Future<Tensor> all_gather_async(const Tensor& slice, int axis,
                                  const std::optional<Shape>& whole = std::nullopt,
                                  SourceLine where = SourceLine::current());
  /// Combines all devices' tensors, and returns the result on every device. Works in the argument's memory.
  Future<Tensor> all_reduce_async(Tensor&& t, ReduceOp op, SourceLine where = SourceLine::current());
  /// Combines all devices' tensors, and returns this device's part of the result along `axis`.
  Future<Tensor> reduce_scatter_async(Tensor&& t, ReduceOp op, int axis,
                                      SourceLine where = SourceLine::current());
  /// Sends part k of `t` along `split_axis` to device k, and joins the parts that arrive along `concat_axis`,
  /// in device order. Parts follow the rule of split.hpp.
  Future<Tensor> all_to_all_async(Tensor&& t, int split_axis, int concat_axis,
                                  SourceLine where = SourceLine::current());
  /// The same along one axis, with parts whose sizes the caller chooses: counts[k] indices of the axis go to
  /// device k.
  Future<Tensor> all_to_all_async(Tensor&& t, const std::vector<Index>& counts, int axis,
                                  SourceLine where = SourceLine::current());
  /// Returns the root's tensor on every device. The tensors that other devices pass are ignored.
  Future<Tensor> broadcast_async(Tensor&& t, int root, SourceLine where = SourceLine::current());

  /// Returns when every call that this device has started is done.
  void synchronize(SourceLine where = SourceLine::current());
  /// Every device's number, in device order. A control message, which the ledger does not count.
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

  /// Makes a call: all functions above come here. A communicator around another one overrides this function.
  virtual Future<CallResult> call(Request&& request) = 0;

 private:
  /// Notes the line, for errors, and makes the call.
  Future<CallResult> ask(Request&& request);
  /// A second tensor on the same memory.
  static Tensor share(const Tensor& t) { return Tensor(t.shape_, t.storage_); }
};

/// The future of a call that is done.
Future<CallResult> done(CallResult result);

/// The group as errors name it: "{4, 1, 3}", and an empty text for the world.
std::string name_of_group(const Communicator& group);

/// Prints "device D: TITLE TENSOR" for each device of the group, in order. A collective; device 0 writes.
void print_in_device_order(Communicator& group, std::ostream& out, const std::string& title,
                           const Tensor& tensor, SourceLine where = SourceLine::current());

/// Runs a program on many devices: starts this process's device and calls `body` with the group of all
/// devices, which returns its exit code, 0 to 125. Returns the largest exit code of all devices. An Error, or
/// any other exception, ends every device with its code and one line. Call it once in a program.
int run_on_devices(int& argc, char**& argv, const std::function<int(Communicator& world)>& body);
/// Whether all_reduce and reduce_scatter first find out if all members make the same call; from the beginning
/// they do. Without that, devices that disagree hang or compute wrong numbers. To be set on all devices before
/// the same call. The other collectives always agree: their members need numbers of one another.
void set_agreement(bool is_wanted);
/// Whether bytes and messages are booked from closed forms, as with NCCL, which does not tell what it sends;
/// else they are counted as they are sent.
bool traffic_is_booked();
/// @}

}  // namespace shard
