#include "emu/stream.hpp"

#include <fmt/format.h>

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

void Stream::advance() {
  while (!queue_.empty()) {
    Operation& first = *queue_.front();
    if (!first.body.advance()) return;
    first.done = true;
    queue_.pop_front();
  }
}

void Stream::wait_for(Operation& operation) {
  ControlPlane::Wait wait;
  for (advance(); !operation.done; advance()) wait.idle([this] { return describe(); });
  std::exception_ptr error = operation.body.error();
  operation.body = Task();
  if (error) std::rethrow_exception(error);
}

void Stream::drain() {
  ControlPlane::Wait wait;
  for (advance(); !queue_.empty(); advance()) wait.idle([this] { return describe(); });
}

Blocked Stream::describe() const {
  if (queue_.empty()) return {};
  const Operation& first = *queue_.front();
  Blocked blocked{fmt::format("{} (call {})", first.call, first.number), {}};
  const Posts* awaited = first.body.awaited();
  if (awaited == nullptr) return blocked;
  blocked.needs = awaited->needs();
  for (std::size_t i = 0; i < blocked.needs.size(); ++i)
    blocked.call += fmt::format("{} {}", i == 0 ? " for device" : ",", blocked.needs[i].peer);
  return blocked;
}

Stream& stream() {
  static Stream instance;
  return instance;
}

}  // namespace shard::emu
