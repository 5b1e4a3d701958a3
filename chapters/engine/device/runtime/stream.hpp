#pragma once

/// The communication stream. A collective is a coroutine that suspends where it has to wait for messages.
/// Collectives of all groups run one after the other in the order in which this device started them, a step at
/// each call into the runtime: one order for all communicators, as NCCL demands. There is no progress thread.

#include <coroutine>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "engine/device/device.hpp"
#include "engine/device/runtime/group.hpp"

namespace shard::runtime {

/// A collective's body. `co_await posts` returns when all posts are complete, and so for others that it
/// awaits.
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
  /// What went wrong in it, if it is done.
  std::exception_ptr error() const { return body_ ? body_.promise().error : nullptr; }
  /// What it waits for.
  const Awaited* awaited() const { return body_ ? body_.promise().awaited : nullptr; }

 private:
  struct Awaiter {
    Awaited& awaited;
    bool await_ready() { return awaited.test(); }
    void await_suspend(std::coroutine_handle<promise_type> body) { body.promise().awaited = &awaited; }
    void await_resume() {}
  };

  explicit Task(std::coroutine_handle<promise_type> body) : body_(body) {}

  std::coroutine_handle<promise_type> body_;
};

/// An operation's place in the queues of a device that runs behind its host, as a GPU does.
class OnDevice {
 public:
  virtual ~OnDevice() = default;
  /// Whether the device has got past it.
  virtual bool is_reached() = 0;
  /// What the device computes from now on comes after it.
  virtual void join() = 0;
};

/// One call: its arguments and result, its body, and what its errors call it.
struct Operation {
  std::string call;         ///< "all_reduce", "all_reduce in group {4, 1, 3}"
  std::int64_t number = 0;  ///< of the call, among this device's, counted from 0
  Tensor tensor;            ///< the argument, later the result
  /// Holds its buffers until somebody waits: what is held then does not depend on how fast messages were.
  Task body;
  std::function<void(Tensor&)> finish;  ///< makes the result, once somebody waits: for the same reason
  std::unique_ptr<OnDevice> on_device;  ///< none where a device does at once what it is told
  bool done = false;                    ///< its body is; then, too, it is in the device's queues
  bool is_posted = false;  ///< whether it goes on by itself and does not take its turn on the stream
};

/// The operations of this device, in the order in which they were started.
class Stream {
 public:
  /// Puts an operation behind those already started, and lets the first of them go on.
  void start(std::shared_ptr<Operation> operation);
  /// Starts an operation that does not take its turn: a message by itself.
  void post(std::shared_ptr<Operation> operation);
  /// Lets everything that was started go on as far as it can without waiting.
  void advance();
  /// Returns when this operation is done, and frees its buffers; rethrows what went wrong in it.
  void wait_for(Operation& operation);
  /// Returns when nothing is left to do, of what was posted either.
  void drain();
  /// For a wait for this operation: if it takes its turn, the first on the stream is what it waits for.
  Blocked describe(const Operation& operation) const;
  /// For a wait for all.
  Blocked describe() const;
  /// What each operation that may go on needs.
  std::vector<Blocked::Needs> in_flight() const;

  /// Calls made by this device, in all groups; an error names a call by its number.
  Index calls() const { return calls_; }
  Index count_call() { return calls_++; }

  /// Set while this device makes a group: other members may wait for it by then, so a backend must not let it
  /// wait for one other device.
  bool is_making_a_group = false;

 private:
  Blocked blocked_by(const Operation& operation) const;

  Index calls_ = 0;
  std::deque<std::shared_ptr<Operation>> queue_;
  std::list<std::shared_ptr<Operation>> posted_;
};

Stream& stream();

}  // namespace shard::runtime
