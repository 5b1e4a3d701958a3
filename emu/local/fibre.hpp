#pragma once

/// A function with a stack of its own, which can stop in the middle and go on later: makecontext and swapcontext
/// of the C library. They cost two system calls a switch, 0.3 µs, and need no package; a device waits about as
/// often as it makes a call.

#include <cxxabi.h>
#include <ucontext.h>

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
  void swap(ucontext_t& from, ucontext_t& to);

  std::function<void()> body_;
  void* memory_;
  ucontext_t here_{}, outside_{};
  Exceptions exceptions_;
  bool has_ended_ = false;
};

}  // namespace shard::local
