#include "emu/stream.hpp"

#include <fmt/ranges.h>

#include <set>

namespace shard::emu {

bool Task::advance() {
  while (!body_.done()) {
    Posts*& awaited = body_.promise().awaited;
    if (awaited != nullptr && !transport().test(*awaited)) return false;
    awaited = nullptr;
    body_.resume();
  }
  return true;
}

void Stream::start(std::shared_ptr<Operation> operation) {
  queue_.push_back(std::move(operation));
  advance();
}

void Stream::post(std::shared_ptr<Operation> operation) {
  operation->is_posted = true;
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
  operation.body = Task();
  if (error) std::rethrow_exception(error);
  if (operation.finish) std::exchange(operation.finish, nullptr)(operation.tensor);
}

void Stream::drain() {
  ControlPlane::Wait wait;
  for (advance(); !queue_.empty(); advance()) wait.idle([this] { return describe(); });
}

namespace {

Blocked blocked_by(const Operation& operation) {
  Blocked blocked{fmt::format("{} (call {})", operation.call, operation.number), {}};
  const Posts* awaited = operation.body.awaited();
  if (awaited == nullptr) return blocked;
  blocked.needs = awaited->needs();
  std::set<Index> peers;  // each once
  for (const Blocked::Need& need : blocked.needs) peers.insert(need.peer);
  if (!peers.empty()) blocked.call += fmt::format(" for device {}", fmt::join(peers, ", "));
  return blocked;
}

}  // namespace

Blocked Stream::describe(const Operation& operation) const {
  return operation.is_posted ? blocked_by(operation) : describe();
}

Blocked Stream::describe() const {
  return queue_.empty() ? Blocked{} : blocked_by(*queue_.front());
}

Stream& stream() {
  static Stream instance;
  return instance;
}

}  // namespace shard::emu
