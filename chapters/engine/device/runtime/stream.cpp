#include "engine/device/runtime/stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/device/runtime/backend.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

using namespace std::chrono_literals;

std::atomic<bool> another_has_called = false;

[[noreturn]] void end_job() {
  ControlPlane::instance().fail(
      Code::argument, fmt::format("device {}: a call to the device, or an operation on tensors: expected "
                                  "from the thread that runs the program, given from a second thread",
                                  this_device()));
}

/// The first thread that calls this is the device's thread. A call from any other thread ends the job with one
/// line, code 84.
void require_own_thread() {
  static const std::thread::id owner = std::this_thread::get_id();
  const bool is_owner = std::this_thread::get_id() == owner;
  if (is_owner && !another_has_called.load(std::memory_order_relaxed)) return;
  if (is_owner) end_job();
  // Only one thread may use MPI at a time. So the owner ends the job at its next call. If it makes none within a
  // second, it probably waits for this thread, which then ends the job itself.
  if (another_has_called.exchange(true)) std::this_thread::sleep_for(1h);
  std::this_thread::sleep_for(1s);
  end_job();
}

}  // namespace

void Stream::start(std::shared_ptr<Call> call) {
  stop_polling();
  call->on_device = enter_device(*call);
  if (!call->is_posted())
    queue_.push_back(std::move(call));
  else if (!advance(*call))
    posted_.push_back(std::move(call));
  advance();
}

void Stream::advance() {
  require_own_thread();
  // Collectives first: a message may have to connect two GPUs, and the host then waits for all that was launched.
  while (!queue_.empty() && advance(*queue_.front())) queue_.pop_front();
  for (std::size_t tests = std::min(posted_.size(), most_tests); tests-- > 0;) {
    if (next_posted_ == posted_.end()) next_posted_ = posted_.begin();
    next_posted_ = advance(**next_posted_) ? posted_.erase(next_posted_) : std::next(next_posted_);
  }
}

void Stream::advance_during_work() {
  advance();
  if (!queue_.empty() || !posted_.empty()) ControlPlane::yield_before_work();
}

bool Stream::advance(Call& call) {
  const CallSite::Resumed its_call(call.request.where);
  const struct Body {
    explicit Body(bool& is_in_one) : flag(is_in_one), before(std::exchange(is_in_one, true)) {}
    ~Body() { flag = before; }
    bool& flag;
    bool before;
  } runs(is_in_body_);
  return call.done = call.done || call.body.advance();
}

void Stream::wait_for(Call& call) try {
  stop_polling();
  ControlPlane::Wait wait;
  for (advance(); !call.done; advance()) {
    if (call.is_posted() && advance(call)) break;
    wait.idle([&] { return describe(call); });
  }
  std::exception_ptr error = call.body.error();
  if (call.on_device && !error) call.on_device->join();
  call.close();
  if (error) std::rethrow_exception(error);
  if (call.finish) std::exchange(call.finish, nullptr)(call.tensor);
} catch (...) {
  give_up(call);
  throw;
}

/// Removes a failed call, so that later calls can proceed.
void Stream::give_up(Call& call) {
  posted_.remove_if([&](const auto& o) { return o.get() == &call; });
  next_posted_ = posted_.begin();
  std::erase_if(queue_, [&](const auto& o) { return o.get() == &call; });
  call.close();
}

namespace {

bool is_done(const Call& call) {
  return call.done && (!call.on_device || call.on_device->is_reached());
}

}  // namespace

bool Stream::poll(const std::shared_ptr<Call>& call) {
  advance();
  if (call->is_posted()) advance(*call);
  if (is_done(*call)) return true;
  if (!std::exchange(call->is_polled, true)) polled_.push_back(call);
  if (!poll_wait_) poll_wait_.emplace();
  poll_wait_->poll([this] { return describe_polled(); });
  return false;
}

void Stream::stop_polling() {
  for (const auto& call : polled_) call->is_polled = false;
  polled_.clear();
  poll_wait_.reset();
}

void Stream::drain() {
  stop_polling();
  ControlPlane::Wait wait;
  for (advance(); !queue_.empty() || !posted_.empty(); advance()) wait.idle([this] { return describe(); });
}

namespace {

std::optional<Blocked::Dependencies> dependencies_of(const Call& call) {
  const Awaited* awaited = call.body.awaited();
  return awaited == nullptr ? Blocked::Dependencies{} : awaited->dependencies();
}

}  // namespace

std::vector<Blocked::Dependencies> Stream::in_flight() const {
  std::vector<Blocked::Dependencies> all;
  auto add = [&](const Call& o) {
    if (auto dependencies = dependencies_of(o)) all.push_back(std::move(*dependencies));
  };
  if (!queue_.empty()) add(*queue_.front());
  for (const auto& posted : posted_)
    if (!posted->done) add(*posted);
  return all;
}

Blocked Stream::blocked_by(const Call& call) const {
  Blocked blocked;
  blocked.call = call.name;
  blocked.place = place_of_call(call.request.call, call.request.where, call.request.is_counted());
  blocked.in_flight = in_flight();
  if (const std::optional<Blocked::Dependencies> dependencies = dependencies_of(call))
    blocked.any_of = {*dependencies};
  else
    blocked.any_of = blocked.in_flight;
  if (!is_message(call.request.function)) {
    blocked.group = call.group().id();
    blocked.members = call.group().members();
    blocked.call_of_group = call.group().calls_begun();
  }
  return blocked;
}

/// The call that this one waits for: the first of the stream, or itself if it is nonblocking or done. (A done call
/// waits only for this device's GPU.)
const Call& Stream::blocking_call(const Call& call) const {
  return call.done || call.is_posted() || queue_.empty() ? call : *queue_.front();
}

Blocked Stream::describe(const Call& call) const {
  return blocked_by(blocking_call(call));
}

/// The device continues when any of the calls that it polls is done.
Blocked Stream::describe_polled() const {
  Blocked all;
  std::size_t polled = 0;
  for (const auto& call : polled_) {
    if (is_done(*call)) continue;
    if (polled++ == 0)
      all = describe(*call);
    else if (std::optional<Blocked::Dependencies> dependencies = dependencies_of(blocking_call(*call)))
      all.any_of.push_back(std::move(*dependencies));
    else
      all.any_of.insert(all.any_of.end(), all.in_flight.begin(), all.in_flight.end());
  }
  all.is_polling = true;
  if (polled > 1) all.place += fmt::format(", and {} more", polled - 1);
  return all;
}

/// The device continues when all calls in flight are done.
Blocked Stream::describe() const {
  if (queue_.empty() && posted_.empty()) return {};
  Blocked blocked = blocked_by(queue_.empty() ? *posted_.front() : *queue_.front());
  Blocked::Dependencies all;
  for (const auto& of_call : blocked.in_flight) all.insert(all.end(), of_call.begin(), of_call.end());
  blocked.any_of = {all};
  return blocked;
}

Stream& stream() {
  return device().part<Stream>();
}

}  // namespace shard::runtime
