#pragma once

/// A stackful coroutine: a function with a stack of its own, which can suspend itself. makecontext sets up the
/// stack, and siglongjmp without signals switches without a system call, as in QEMU's coroutines.

#include <cxxabi.h>
#include <ucontext.h>

#include <csetjmp>
#include <functional>

namespace shard::local {

/// A stack in memory.
struct Stack {
  const void* bottom = nullptr;
  std::size_t size = 0;
};

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
  bool has_ended() const { return has_ended_; }

 private:
  /// The exceptions that are being handled, as in the C++ ABI's __cxa_eh_globals. Each fibre has its own.
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  static void run(unsigned high, unsigned low);
  void swap_exceptions();

  std::function<void()> body_;
  void* memory_;
  Stack callers_;  // of the caller of resume; known to AddressSanitizer only
  ucontext_t begin_{};
  sigjmp_buf here_{}, outside_{};
  Exceptions exceptions_;
  bool has_begun_ = false;
  bool has_ended_ = false;
};

}  // namespace shard::local
