#pragma once

/// A call in progress: what was asked, the coroutine that does it, and what it sends.

#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/runtime/groups/agreement.hpp"

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

/// A call in progress, as its body and its future see it. At the beginning of every collective the members tell
/// each other in control messages what they call. So an error can explain a mistake, and slices may differ in
/// size.
class Call : public Pending, public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<Group> group, Request&& asked);
  ~Call() override { close(); }

  Request request;         ///< without its tensor
  const std::string name;  ///< "all_reduce", "all_reduce in group {4, 1, 3}"
  Tensor tensor;           ///< the argument, later the result
  /// The caller waits before this memory is freed, so that the bytes held do not depend on the speed of messages:
  /// a ring's largest chunk, or room for all slices that are gathered.
  Tensor buffer;
  std::vector<Range> slices;  ///< where the members' parts lie in the argument
  Task body;
  std::vector<Index> numbers;           ///< the result of an exchange
  std::function<void(Tensor&)> finish;  ///< makes the result when the caller waits, for the same reason
  std::unique_ptr<OnDevice> on_device;  ///< null for a device that works at once, such as the emulator's
  bool done = false;                    ///< the body is done: all its work is in the device's streams
  bool is_polled = false;               ///< since its device began to poll

  /// Whether it goes on at once, and does not wait for its turn on the stream.
  bool is_posted() const;
  /// A message: two members call it, and not all.
  bool is_message() const;

  /// A program may ask in a loop, so it must notice a failed device, and a call that can never be done.
  bool test() override;
  void wait() override;
  CallResult take_result() override;
  void dropped() noexcept override;
  /// Ends the body, and frees what it held.
  void close();

  Group& group() const { return *group_; }
  int me() const { return group_->device_id(); }
  int devices() const { return group_->num_devices(); }
  int right() const { return (me() + 1) % devices(); }
  int left() const { return (me() + devices() - 1) % devices(); }
  /// Any whole number as a place in the ring.
  int place(int k) const { return ((k % devices()) + devices()) % devices(); }
  /// The other device of a message, or the root, by its place.
  int peer() const { return *request.peer; }

  /// Tells the other members what this device calls. What a body sends before it awaits the agreement, the
  /// others receive only if they make the same call. Each tells a `number` of its own beside, if there is one.
  void announce(MayDiffer difference, std::optional<Index> number = std::nullopt) {
    if (number) request.number = *number;
    agreement_.begin(*group_, request, difference);
  }
  /// `co_await call.agreement()` returns when all members are known to make this call on shapes that fit.
  /// \throws Error mismatch, on all members, if they do not.
  Agreement& agreement() { return agreement_; }
  const Agreement& agreement() const { return agreement_; }

  /// Sends number k to member k, and receives one from each: complete with the call's messages.
  void exchange_counts(const std::vector<Index>& for_each);
  /// What the others sent, by member, and this member's own.
  const std::vector<Index>& counts() const { return counts_; }

  /// Sends a shape to one member, and receives one from another: complete with the call's messages.
  void exchange_shapes(const Shape& shape, std::optional<int> to, std::optional<int> from);
  /// What that member sent.
  Shape received_shape() const;

  /// Posts of one step: `co_await call.messages()` returns when they are complete.
  Posts& messages() { return posts_; }

 private:
  std::shared_ptr<Group> group_;
  Agreement agreement_;
  std::vector<Index> sent_counts_, counts_;
  std::vector<Index> sent_shape_, received_shape_;
  Posts posts_;
};

/// The shape of what a broadcast's root sends, passed on along a binomial tree.
class RootShape : public Awaited {
 public:
  /// `root` is the root's place. `shape` is read on the root only. Begins at once.
  RootShape(Call& call, int root, const Shape& shape);
  bool test() override;
  std::optional<Blocked::Needs> needs() const override { return posts_.needs(); }
  /// Known on every member once it is complete.
  Shape shape() const;

 private:
  void pass_on();

  Group& group_;
  std::vector<int> children_;
  std::vector<Index> numbers_;
  bool has_passed_on_ = false;
  Posts posts_;
};

}  // namespace shard::runtime
