/// Fibres of a process: makecontext sets up the stack, and siglongjmp without signals switches without a system call,
/// as in QEMU's coroutines.

#undef _FORTIFY_SOURCE  // it aborts at a longjmp to another stack
#include "emu/local/fibre.hpp"

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csetjmp>
#include <cstdint>
#include <new>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace shard::local {

struct StackInMemory {
  const void* bottom = nullptr;
  std::size_t size = 0;
};

/// The exceptions that are being handled, as in the C++ ABI's __cxa_eh_globals. Each fibre has its own.
struct Exceptions {
  void* caught = nullptr;
  unsigned uncaught = 0;
};

namespace {

constexpr std::size_t stack_size = std::size_t{4}
                                   << 20;  // of address space: pages are allocated when they are used

/// Tells AddressSanitizer which stack comes next, and when it is there. Without this, an exception on a fibre's stack
/// is taken for an overflow. `kept`: what the sanitizer keeps for the stack that is left; null if it ends.
#ifdef __SANITIZE_ADDRESS__
void leave_stack(void** kept, const StackInMemory& next) {
  __sanitizer_start_switch_fiber(kept, next.bottom, next.size);
}
void enter_stack(void* kept, StackInMemory& before) {
  __sanitizer_finish_switch_fiber(kept, &before.bottom, &before.size);
}
#else
void leave_stack(void**, const StackInMemory&) {}
void enter_stack(void*, StackInMemory&) {}
#endif

std::size_t page() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

class Fibre::Stack {
 public:
  explicit Stack(std::function<void()> body) : body_(std::move(body)) {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    memory_ = mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory_, page(), PROT_NONE);  // an overflow of the stack ends the process at once
    getcontext(&begin_);
    begin_.uc_stack.ss_sp = memory_;
    begin_.uc_stack.ss_size = stack_size;
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&begin_, reinterpret_cast<void (*)()>(run), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address));
  }
  ~Stack() { munmap(memory_, stack_size); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  void resume() {
    swap_exceptions();
    void* kept = nullptr;
    leave_stack(&kept, {memory_, stack_size});
    if (sigsetjmp(outside_, 0) != 0) {
      StackInMemory own;
      return enter_stack(kept, own);
    }
    if (std::exchange(has_begun_, true)) siglongjmp(here_, 1);
    setcontext(&begin_);
  }

  void suspend() {
    void* kept = nullptr;
    leave_stack(has_ended_ ? nullptr : &kept, callers_);
    if (sigsetjmp(here_, 0) != 0) return enter_stack(kept, callers_);
    swap_exceptions();
    siglongjmp(outside_, 1);
  }

  bool has_ended() const { return has_ended_; }

 private:
  static void run(unsigned high, unsigned low) {
    auto* stack = reinterpret_cast<Stack*>((static_cast<std::uintptr_t>(high) << 32) | low);
    enter_stack(nullptr, stack->callers_);
    stack->body_();
    stack->has_ended_ = true;
    stack->suspend();
  }

  void swap_exceptions() { std::swap(*reinterpret_cast<Exceptions*>(abi::__cxa_get_globals()), exceptions_); }

  std::function<void()> body_;
  void* memory_;
  StackInMemory callers_;  // of the caller of resume; known to AddressSanitizer only
  ucontext_t begin_{};
  sigjmp_buf here_{}, outside_{};
  Exceptions exceptions_;
  bool has_begun_ = false;
  bool has_ended_ = false;
};

Fibre::Fibre(std::function<void()> body) : stack_(std::make_unique<Stack>(std::move(body))) {}
Fibre::~Fibre() = default;
void Fibre::resume() {
  stack_->resume();
}
void Fibre::suspend() {
  stack_->suspend();
}
bool Fibre::has_ended() const {
  return stack_->has_ended();
}

}  // namespace shard::local
