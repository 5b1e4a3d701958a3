#pragma once

/// A call in progress: its request, the coroutine that executes it, and its messages.

#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/runtime/groups/agreement.hpp"

namespace shard::runtime {

/// The body of a call, a coroutine. It can await any Awaited: `co_await posts` returns when all posts are
/// complete.
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
  /// Runs the body until it is done or has to wait. Returns true when it is done.
  bool run_until_it_waits();
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

/// A message's shape as numbers, and back.
inline constexpr std::size_t most_axes = 32;
inline constexpr std::size_t most_shape_numbers = 1 + most_axes;
std::vector<Index> numbers_of(const Shape& shape);
Shape shape_from(const std::vector<Index>& numbers);

struct Tree;

/// Whether it is a send or a receive, which two members call.
bool is_message(Collective function);

/// A call in progress. At the beginning of a collective, the members tell one another in control messages what
/// they call. So an error can say who calls what, and slices may differ in size.
class Call : public Pending, public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<Group> group, Request&& asked);
  ~Call() override { close(); }

  Request request;         ///< without its tensor
  const std::string name;  ///< "all_reduce", "all_reduce in group {4, 1, 3}"
  Tensor tensor;           ///< the argument, later the result
  /// Memory for a ring's largest chunk, or for all slices of an all_gather. It is freed when the caller waits, so
  /// that the bytes held do not depend on timing.
  Tensor buffer;
  std::vector<Range> slices;  ///< the members' parts of the argument
  Task body;
  std::vector<Index> numbers;           ///< the result of an exchange
  std::function<void(Tensor&)> finish;  ///< makes the result when the caller waits, or empty
  /// The call's work in the streams of a GPU, which executes work later than the host launches it. `finish` makes all
  /// computation that is launched from then on wait for it. Null for the emulator, which executes work at once.
  std::unique_ptr<Awaited> on_device;
  bool done = false;       ///< the body is done, and has launched all its work
  bool is_polled = false;  ///< the caller has tested it since this device's last call

  /// Whether it is a nonblocking message, which proceeds independently of the order of the stream.
  bool is_posted() const;

  /// Whether it is done, also on the device.
  bool has_ended() const { return done && (!on_device || on_device->test()); }

  /// Also notices failed devices and deadlocks, since a program may test in a loop.
  bool test() override;
  void wait() override;
  CallResult take_result() override;
  void dropped() noexcept override;
  /// Destroys the body, and frees its messages and buffers.
  void close();

  Group& group() const { return *group_; }
  int me() const { return group_->device_id(); }
  int devices() const { return group_->num_devices(); }
  int right() const { return (me() + 1) % devices(); }
  int left() const { return (me() + devices() - 1) % devices(); }
  /// k modulo the number of devices: a place in the ring.
  int place(int k) const { return ((k % devices()) + devices()) % devices(); }
  /// The place of the other device of a message, or of the root.
  int peer() const { return *request.peer; }

  /// Tells the other members what this device calls, and a `number` of its own. A body may send before it awaits
  /// the agreement: members that make another call do not receive that.
  void announce(MayDiffer difference, std::optional<Index> number = std::nullopt) {
    if (number) request.number = *number;
    agreement_.begin(*group_, request, difference);
  }
  /// `co_await call.agreement()` returns when all members are known to make this call on shapes that fit.
  /// \throws Error mismatch, on all members, if they do not.
  Agreement& agreement() { return agreement_; }
  const Agreement& agreement() const { return agreement_; }

  /// Sends the request's count k to member k, and receives one from each. Complete when messages() are. Without
  /// counts the parts follow from the shapes, and nothing is sent.
  void exchange_counts();
  /// The counts for this member, by sender; its own one included.
  const std::vector<Index>& counts() const { return counts_; }

  /// Sends a shape to one member, and receives one from another. Complete when messages() are.
  void exchange_shapes(const Shape& shape, std::optional<int> to, std::optional<int> from);
  /// The shape of a broadcast's tensor goes along a tree. First the root has it, and the others receive it, which is
  /// complete when messages() are; then each sends it to its children.
  /// @{
  void take_shape(const Tree& tree, const Shape& of_root);
  void pass_on_shape(const Tree& tree);
  /// @}
  /// The shape that has arrived.
  Shape received_shape() const;

  /// The posts of the current step: `co_await call.messages()` returns when they are complete.
  Posts& messages() { return posts_; }

 private:
  std::shared_ptr<Group> group_;
  Agreement agreement_;
  std::vector<Index> counts_;
  std::vector<Index> sent_shape_, received_shape_;
  Posts posts_;
};

}  // namespace shard::runtime
