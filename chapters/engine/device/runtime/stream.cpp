#include "engine/device/runtime/stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/device/runtime/backend.hpp"
#include "engine/device/runtime/job.hpp"
#include "engine/device/runtime/witness.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

using namespace std::chrono_literals;

std::atomic<bool> another_has_called = false;

[[noreturn]] void end_job() {
  Job::fail(Code::argument,
            fmt::format("device {}: a call to the device, or an operation on tensors: expected "
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
  if (!call->is_posted()) {
    queue_.push_back(std::move(call));
  } else {
    resume_collectives();
    if (!run_body(*call)) posted_.push_back(std::move(call));
  }
  resume_ready();
}

/// Before any message: that may have to connect two GPUs, and the host then waits for all that was launched.
void Stream::resume_collectives() {
  require_own_thread();
  while (!queue_.empty() && run_body(*queue_.front())) queue_.pop_front();
}

void Stream::resume_ready() {
  resume_collectives();
  for (std::size_t tests = std::min(posted_.size(), most_tests); tests-- > 0;) {
    if (next_posted_ == posted_.end()) next_posted_ = posted_.begin();
    next_posted_ = run_body(**next_posted_) ? posted_.erase(next_posted_) : std::next(next_posted_);
  }
}

void Stream::resume_before_work() {
  resume_ready();
  if (!queue_.empty() || !posted_.empty()) Wait::let_others_run();
}

bool Stream::run_body(Call& call) {
  const CallSite::Resumed its_call(call.request.where);
  const struct Body {
    explicit Body(bool& is_in_one) : flag(is_in_one), before(std::exchange(is_in_one, true)) {}
    ~Body() { flag = before; }
    bool& flag;
    bool before;
  } runs(is_in_body_);
  return call.done = call.done || call.body.run_until_it_waits();
}

void Stream::wait_for(Call& call) try {
  stop_polling();
  Wait wait;
  for (resume_ready(); !call.done; resume_ready()) {
    if (call.is_posted() && run_body(call)) break;
    wait.idle([&] { return wait_for_call(*this, call); });
  }
  std::exception_ptr error = call.body.error();
  if (call.on_device && !error) call.on_device->finish();
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

bool Stream::poll(const std::shared_ptr<Call>& call) {
  resume_ready();
  if (call->is_posted()) run_body(*call);
  if (call->has_ended()) return true;
  if (!std::exchange(call->is_polled, true)) polled_.push_back(call);
  if (!poll_wait_) poll_wait_.emplace();
  poll_wait_->poll([this] { return wait_for_polled(*this); });
  return false;
}

void Stream::stop_polling() {
  for (const auto& call : polled_) call->is_polled = false;
  polled_.clear();
  poll_wait_.reset();
}

void Stream::drain() {
  stop_polling();
  Wait wait;
  for (resume_ready(); !queue_.empty() || !posted_.empty(); resume_ready())
    wait.idle([this] { return wait_for_all(*this); });
}

Stream& stream() {
  return device().state<Stream>();
}

}  // namespace shard::runtime
