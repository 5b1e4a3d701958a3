#pragma once

/// The communication stream. A collective is a coroutine that suspends where it has to wait for messages. The
/// stream runs the collectives of all groups one after the other, in the order in which this device started
/// them: NCCL demands one order for all communicators. There is no progress thread; every call into the
/// runtime lets the stream go on.

#include <coroutine>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/runtime/group.hpp"

namespace shard::runtime {

/// The body of a collective, a coroutine. `co_await posts` returns when all posts are complete. It can await
/// anything that is an Awaited.
class Task {
 public:
  struct promise_type {
    Awaited* awaited = nullptr;
    std::exception_ptr error;

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
    auto await_transform(Awaited& awaited) { return Awaiter{awaited}; }
  };

  Task() = default;
  Task(Task&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  ~Task() {
    if (body_) body_.destroy();
  }

  bool done() const { return !body_ || body_.done(); }
  /// Runs until it is done or has to wait; true when it is done.
  bool advance();
  /// The error that ended the body, or null.
  std::exception_ptr error() const { return body_ ? body_.promise().error : nullptr; }
  /// What the body waits for, or null.
  const Awaited* awaited() const { return body_ ? body_.promise().awaited : nullptr; }

 private:
  struct Awaiter {
    Awaited& awaited;
    bool await_ready() { return awaited.test(); }
    void await_suspend(std::coroutine_handle<promise_type> body) { body.promise().awaited = &awaited; }
    void await_resume() { awaited.finish(); }
  };

  explicit Task(std::coroutine_handle<promise_type> body) : body_(body) {}

  std::coroutine_handle<promise_type> body_;
};

/// An operation's place in the streams of a device that works later than its host, as a GPU does.
class OnDevice {
 public:
  virtual ~OnDevice() = default;
  /// Whether the device has done the operation.
  virtual bool is_reached() = 0;
  /// Makes everything that the device computes from now on wait for the operation.
  virtual void join() = 0;
};

/// One call: its arguments and result, its body, and what its errors call it.
struct Operation {
  std::string call;                      ///< "all_reduce", "all_reduce in group {4, 1, 3}"
  std::int64_t number = 0;               ///< the call's number among this device's calls, counted from 0
  SourceLine where;                      ///< the line of the source that made the call
  std::shared_ptr<Group> collective_of;  ///< a collective's group; null for a message
  Tensor tensor;                         ///< the argument, later the result
  /// The body holds its buffers until the caller waits, so that the bytes held do not depend on the speed of
  /// messages.
  Task body;
  std::function<void(Tensor&)> finish;  ///< makes the result when the caller waits, for the same reason
  std::unique_ptr<OnDevice> on_device;  ///< null for a device that works at once, such as the emulator's
  bool done = false;                    ///< the body is done: all its work is in the device's streams
  bool is_posted = false;  ///< whether it goes on at once, and does not wait for its turn on the stream
  bool is_polled = false;  ///< since its device began to poll
};

/// The operations of this device, in the order in which they were started.
class Stream {
 public:
  /// Adds an operation at the end of the stream, and lets the first one of the stream go on.
  void start(std::shared_ptr<Operation> operation);
  /// Starts an operation that does not wait for its turn on the stream: a message.
  void post(std::shared_ptr<Operation> operation);
  /// Lets everything that was started go on as far as it can without waiting.
  void advance();
  /// The same, between two pieces of work: the devices of one process have a turn, too.
  void advance_during_work();
  /// Returns when this operation is done, and frees its buffers. Rethrows its error, if there was one.
  void wait_for(Operation& operation);
  /// Whether this operation is done. \throws Error deadlock, when neither it can ever be done nor any other
  /// that this device has polled since its last call
  bool poll(const std::shared_ptr<Operation>& operation);
  /// Says that this device makes a call: it does not poll any more.
  void stop_polling();
  /// Returns when all operations are done, those on the stream and those that were posted.
  void drain();
  /// Describes a wait for this operation. An operation on the stream waits for the first one on the stream.
  Blocked describe(const Operation& operation) const;
  /// Describes a wait for all operations.
  Blocked describe() const;
  /// What each operation that may go on needs.
  std::vector<Blocked::Needs> in_flight() const;

  /// Calls made by this device, in all groups; an error names a call by its number.
  Index calls() const { return calls_; }
  Index count_call() { return calls_++; }

  /// Set while this device makes a group. The other members wait for it then, so a backend must not let it
  /// wait for one single device.
  bool is_making_a_group = false;

 private:
  /// Lets it go on as far as it can; whether it is done.
  static bool advance(Operation& operation);
  const Operation& first_before(const Operation& operation) const;
  Blocked blocked_by(const Operation& operation) const;
  Blocked describe_polled() const;
  void give_up(Operation& operation);

  Index calls_ = 0;
  std::deque<std::shared_ptr<Operation>> queue_;
  std::list<std::shared_ptr<Operation>> posted_;
  static constexpr std::size_t most_looks = 64;  // of a call, at posted operations: each has its turn
  std::list<std::shared_ptr<Operation>>::iterator next_posted_ = posted_.begin();
  std::vector<std::shared_ptr<Operation>> polled_;  // since the last call
  std::optional<ControlPlane::Wait> patience_;      // of a device that polls
};

Stream& stream();

}  // namespace shard::runtime
