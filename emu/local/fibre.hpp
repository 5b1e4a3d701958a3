#pragma once

/// A function with a stack of its own, which can stop in the middle and go on later. The C library makes the
/// stack (makecontext) and switches (siglongjmp without signals: no system call, as QEMU's coroutines do), so no
/// package is needed.

#include <cxxabi.h>
#include <ucontext.h>

#include <csetjmp>
#include <cstddef>
#include <functional>

namespace shard::local {

class Fibre {
 public:
  /// `body` may not throw.
  explicit Fibre(std::function<void()> body);
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Goes on here until the body suspends itself or ends. Called by what is no fibre.
  void resume();
  /// Called by the body.
  void suspend();
  bool has_ended() const { return has_ended_; }

 private:
  /// The exceptions that a thread handles now, as the ABI of C++ keeps them: each fibre has its own.
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  static void run(unsigned high, unsigned low);
  void swap_exceptions();

  std::function<void()> body_;
  void* memory_;
  ucontext_t begin_{};
  sigjmp_buf here_{}, outside_{};
  Exceptions exceptions_;
  bool has_begun_ = false;
  bool has_ended_ = false;
};

}  // namespace shard::local
