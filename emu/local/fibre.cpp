#undef _FORTIFY_SOURCE  // it aborts at a longjmp to another stack
#include "emu/local/fibre.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>

namespace shard::local {

namespace {

constexpr std::size_t stack_size = std::size_t{4}
                                   << 20;  // of address space: pages are allocated when they are used

std::size_t page() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

Fibre::Fibre(std::function<void()> body) : body_(std::move(body)) {
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

Fibre::~Fibre() {
  munmap(memory_, stack_size);
}

void Fibre::run(unsigned high, unsigned low) {
  auto* fibre = reinterpret_cast<Fibre*>((static_cast<std::uintptr_t>(high) << 32) | low);
  fibre->body_();
  fibre->has_ended_ = true;
  fibre->suspend();
}

void Fibre::swap_exceptions() {
  std::swap(*reinterpret_cast<Exceptions*>(abi::__cxa_get_globals()), exceptions_);
}

void Fibre::resume() {
  swap_exceptions();
  if (sigsetjmp(outside_, 0) != 0) return;
  if (std::exchange(has_begun_, true)) siglongjmp(here_, 1);
  setcontext(&begin_);
}

void Fibre::suspend() {
  if (sigsetjmp(here_, 0) != 0) return;
  swap_exceptions();
  siglongjmp(outside_, 1);
}

}  // namespace shard::local
