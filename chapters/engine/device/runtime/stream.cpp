#include "engine/device/runtime/stream.hpp"

#include <fmt/format.h>

#include "engine/device/runtime/collective_bodies.hpp"
#include "engine/device/runtime/own_thread.hpp"

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
  operation->on_device = enter_device();
  queue_.push_back(std::move(operation));
  advance();
}

void Stream::post(std::shared_ptr<Operation> operation) {
  operation->is_posted = true;
  operation->on_device = enter_device();
  posted_.push_back(std::move(operation));
  advance();
}

void Stream::advance() {
  require_own_thread();
  posted_.remove_if([](const std::shared_ptr<Operation>& o) {
    const CallSite::Resumed its_call(o->where);
    return o->done = o->body.advance();
  });
  while (!queue_.empty()) {
    Operation& first = *queue_.front();
    const CallSite::Resumed its_call(first.where);
    if (!first.body.advance()) return;
    first.done = true;
    queue_.pop_front();
  }
}

void Stream::wait_for(Operation& operation) {
  ControlPlane::Wait wait;
  for (advance(); !operation.done; advance()) wait.idle([&] { return describe(operation); });
  std::exception_ptr error = operation.body.error();
  if (operation.on_device && !error) operation.on_device->join();
  operation.body = Task();
  if (error) std::rethrow_exception(error);
  if (operation.finish) std::exchange(operation.finish, nullptr)(operation.tensor);
}

void Stream::drain() {
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
  for (const auto& posted : posted_) add(*posted);
  return all;
}

Blocked Stream::blocked_by(const Operation& operation) const {
  Blocked blocked;
  blocked.call = operation.call;
  blocked.place = place_of_call(operation.number, operation.where);
  blocked.needs = needs_of(operation);
  blocked.in_flight = in_flight();
  if (const std::shared_ptr<Group>& group = operation.collective_of) {
    blocked.group = group->id();
    blocked.members = group->members();
    blocked.call_of_group = group->calls_begun();
  }
  return blocked;
}

Blocked Stream::describe(const Operation& operation) const {
  if (operation.done) {  // only its own GPU is still at it
    Blocked blocked = blocked_by(operation);
    blocked.needs = Blocked::Needs{};
    return blocked;
  }
  return operation.is_posted || queue_.empty() ? blocked_by(operation) : blocked_by(*queue_.front());
}

/// All that is in flight has to be done.
Blocked Stream::describe() const {
  if (queue_.empty() && posted_.empty()) return {};
  Blocked blocked = blocked_by(queue_.empty() ? *posted_.front() : *queue_.front());
  blocked.needs = Blocked::Needs{};
  for (const Blocked::Needs& needs : blocked.in_flight)
    blocked.needs->insert(blocked.needs->end(), needs.begin(), needs.end());
  return blocked;
}

Stream& stream() {
  static Stream instance;
  return instance;
}

}  // namespace shard::runtime
