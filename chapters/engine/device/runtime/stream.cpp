#include "engine/device/runtime/stream.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/device/runtime/collective_bodies.hpp"
#include "engine/device/runtime/own_thread.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

bool Task::advance() {
  while (!body_.done()) {
    Awaited*& awaited = body_.promise().awaited;
    if (awaited != nullptr && !awaited->test()) return false;
    awaited = nullptr;
    body_.resume();
  }
  return true;
}

void Stream::start(std::shared_ptr<Operation> operation) {
  stop_polling();
  operation->on_device = enter_device();
  queue_.push_back(std::move(operation));
  advance();
}

void Stream::post(std::shared_ptr<Operation> operation) {
  stop_polling();
  operation->is_posted = true;
  operation->on_device = enter_device();
  if (!advance(*operation)) posted_.push_back(std::move(operation));
  advance();
}

void Stream::advance() {
  require_own_thread();
  for (std::size_t looks = std::min(posted_.size(), most_looks); looks-- > 0;) {
    if (next_posted_ == posted_.end()) next_posted_ = posted_.begin();
    next_posted_ = advance(**next_posted_) ? posted_.erase(next_posted_) : std::next(next_posted_);
  }
  while (!queue_.empty() && advance(*queue_.front())) queue_.pop_front();
}

void Stream::advance_during_work() {
  advance();
  if (!queue_.empty() || !posted_.empty()) ControlPlane::note_work();
}

bool Stream::advance(Operation& operation) {
  const CallSite::Resumed its_call(operation.where);
  return operation.done = operation.done || operation.body.advance();
}

void Stream::wait_for(Operation& operation) try {
  stop_polling();
  ControlPlane::Wait wait;
  for (advance(); !operation.done; advance()) {
    if (operation.is_posted && advance(operation)) break;
    wait.idle([&] { return describe(operation); });
  }
  std::exception_ptr error = operation.body.error();
  if (operation.on_device && !error) operation.on_device->join();
  operation.body = Task();
  if (error) std::rethrow_exception(error);
  if (operation.finish) std::exchange(operation.finish, nullptr)(operation.tensor);
} catch (const Error&) {
  give_up(operation);
  throw;
}

/// After a deadlock: it makes room for later calls.
void Stream::give_up(Operation& operation) {
  posted_.remove_if([&](const auto& o) { return o.get() == &operation; });
  next_posted_ = posted_.begin();
  std::erase_if(queue_, [&](const auto& o) { return o.get() == &operation; });
  operation.body = Task();
}

namespace {

bool is_done(const Operation& operation) {
  return operation.done && (!operation.on_device || operation.on_device->is_reached());
}

}  // namespace

bool Stream::poll(const std::shared_ptr<Operation>& operation) {
  advance();
  if (operation->is_posted) advance(*operation);
  if (is_done(*operation)) return true;
  if (!std::exchange(operation->is_polled, true)) polled_.push_back(operation);
  if (!patience_) patience_.emplace();
  patience_->poll([this] { return describe_polled(); });
  return false;
}

void Stream::stop_polling() {
  for (const auto& operation : polled_) operation->is_polled = false;
  polled_.clear();
  patience_.reset();
}

void Stream::drain() {
  stop_polling();
  ControlPlane::Wait wait;
  for (advance(); !queue_.empty() || !posted_.empty(); advance()) wait.idle([this] { return describe(); });
}

namespace {

std::optional<Blocked::Needs> needs_of(const Operation& operation) {
  const Awaited* awaited = operation.body.awaited();
  return awaited == nullptr ? Blocked::Needs{} : awaited->needs();
}

}  // namespace

std::vector<Blocked::Needs> Stream::in_flight() const {
  std::vector<Blocked::Needs> all;
  auto add = [&](const Operation& o) {
    if (std::optional<Blocked::Needs> needs = needs_of(o)) all.push_back(std::move(*needs));
  };
  if (!queue_.empty()) add(*queue_.front());
  for (const auto& posted : posted_)
    if (!posted->done) add(*posted);
  return all;
}

Blocked Stream::blocked_by(const Operation& operation) const {
  Blocked blocked;
  blocked.call = operation.call;
  blocked.place = place_of_call(operation.number, operation.where);
  blocked.in_flight = in_flight();
  if (const std::optional<Blocked::Needs> needs = needs_of(operation))
    blocked.any_of = {*needs};
  else
    blocked.any_of = blocked.in_flight;
  if (const std::shared_ptr<Group>& group = operation.collective_of) {
    blocked.group = group->id();
    blocked.members = group->members();
    blocked.call_of_group = group->calls_begun();
  }
  return blocked;
}

/// What has to go on before this operation is done: itself, or the first one of the stream. (One that is done
/// needs nothing: only its own GPU is still at it.)
const Operation& Stream::first_before(const Operation& operation) const {
  return operation.done || operation.is_posted || queue_.empty() ? operation : *queue_.front();
}

Blocked Stream::describe(const Operation& operation) const {
  return blocked_by(first_before(operation));
}

/// Each operation that this device polls lets it go on.
Blocked Stream::describe_polled() const {
  Blocked all;
  std::size_t polled = 0;
  for (const auto& operation : polled_) {
    if (is_done(*operation)) continue;
    if (polled++ == 0)
      all = describe(*operation);
    else if (std::optional<Blocked::Needs> needs = needs_of(first_before(*operation)))
      all.any_of.push_back(std::move(*needs));
    else
      all.any_of.insert(all.any_of.end(), all.in_flight.begin(), all.in_flight.end());
  }
  all.is_polling = true;
  if (polled > 1) all.place += fmt::format(", and {} more", polled - 1);
  return all;
}

/// All that is in flight has to be done.
Blocked Stream::describe() const {
  if (queue_.empty() && posted_.empty()) return {};
  Blocked blocked = blocked_by(queue_.empty() ? *posted_.front() : *queue_.front());
  Blocked::Needs all;
  for (const Blocked::Needs& needs : blocked.in_flight) all.insert(all.end(), needs.begin(), needs.end());
  blocked.any_of = {all};
  return blocked;
}

Stream& stream() {
  return device().part<Stream>();
}

}  // namespace shard::runtime
