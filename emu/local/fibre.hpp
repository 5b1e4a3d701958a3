#pragma once

/// A stackful coroutine: a function with a stack of its own, which can suspend itself. The build chooses how stacks
/// are switched: fibre.cpp in a process, emu/web/fibre.cpp in a page.

#include <functional>
#include <memory>

namespace shard::local {

class Fibre {
 public:
  /// `body` must not throw.
  explicit Fibre(std::function<void()> body);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Runs the body until it suspends itself or ends. Call it outside of all fibres.
  void resume();
  /// Call it in the body.
  void suspend();
  bool has_ended() const;

 private:
  class Stack;
  std::unique_ptr<Stack> stack_;
};

}  // namespace shard::local
