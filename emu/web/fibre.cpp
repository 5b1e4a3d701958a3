/// Fibres of a page, by WebAssembly's JavaScript Promise Integration: a fibre is a function that is called
/// through WebAssembly.promising, and suspends itself in an import that is WebAssembly.Suspending (fibre.js). Each has
/// a C stack of its own; the engine of the browser switches all else.

#include "emu/local/fibre.hpp"

#include <cstdint>
#include <utility>
#include <vector>

extern "C" {
/// Returns when the fibre has suspended itself, or has ended.
void shard_resume(const std::function<void()>* fibre, void* top_of_stack,
                  void (*run)(const std::function<void()>*));
/// Returns when the fibre is resumed.
void shard_suspend(const std::function<void()>* fibre);
void* __cxa_get_globals();  // of the C++ ABI; Emscripten's cxxabi.h leaves it out
/// What a fibre does, from its beginning to its end.
void shard_run_fibre(const std::function<void()>* body) {
  (*body)();
}
}

namespace shard::local {

namespace {

constexpr std::size_t stack_size = std::size_t{256} << 10, alignment = 16;

}  // namespace

/// The exceptions that are being handled, as in the C++ ABI's __cxa_eh_globals. Each fibre has its own.
struct Exceptions {
  void* caught = nullptr;
  unsigned uncaught = 0;
};

class Fibre::Stack {
 public:
  explicit Stack(const std::function<void()>& body)
      : body_([this, body] {
          body();
          has_ended_ = true;
          swap_exceptions();
        }),
        memory_(stack_size) {}

  void resume() {
    swap_exceptions();
    const auto end = reinterpret_cast<std::uintptr_t>(memory_.data() + memory_.size());
    shard_resume(&body_, reinterpret_cast<void*>(end / alignment * alignment), shard_run_fibre);
  }

  void suspend() {
    swap_exceptions();
    shard_suspend(&body_);
  }

  bool has_ended() const { return has_ended_; }

 private:
  void swap_exceptions() { std::swap(*reinterpret_cast<Exceptions*>(__cxa_get_globals()), exceptions_); }

  std::function<void()> body_;
  std::vector<char> memory_;
  Exceptions exceptions_;
  bool has_ended_ = false;
};

Fibre::Fibre(std::function<void()> body) : stack_(std::make_unique<Stack>(body)) {}
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
