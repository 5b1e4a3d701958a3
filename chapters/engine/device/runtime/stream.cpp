#include "engine/device/runtime/stream.hpp"

#include <fmt/ranges.h>

#include <set>

#include "engine/device/runtime/collective_bodies.hpp"

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
  posted_.remove_if([](const std::shared_ptr<Operation>& o) { return o->done = o->body.advance(); });
  while (!queue_.empty()) {
    Operation& first = *queue_.front();
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

std::string waiting_in(const Operation& operation) {
  std::string text = fmt::format("{} (call {})", operation.call, operation.number);
  std::set<Index> peers;  // each once
  for (const Blocked::Need& need : needs_of(operation).value_or(Blocked::Needs{})) peers.insert(need.peer);
  return peers.empty() ? text : fmt::format("{} for device {}", text, fmt::join(peers, ", "));
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
  return {waiting_in(operation), in_flight()};
}

Blocked Stream::describe(const Operation& operation) const {
  if (operation.done) return {waiting_in(operation), {Blocked::Needs{}}};  // only its own GPU is still at it
  return operation.is_posted || queue_.empty() ? blocked_by(operation) : blocked_by(*queue_.front());
}

Blocked Stream::describe() const {
  if (!queue_.empty()) return blocked_by(*queue_.front());
  return posted_.empty() ? Blocked{} : blocked_by(*posted_.front());
}

Stream& stream() {
  static Stream instance;
  return instance;
}

}  // namespace shard::runtime
