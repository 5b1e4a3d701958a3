#include "tests/files/safetensors_files.hpp"

#include <malloc.h>

#include <new>

namespace allocated {
std::atomic<std::size_t> now{0}, peak{0}, largest{0};
void reset() {
  peak = now.load(), largest = 0;
}
}  // namespace allocated

// Not inlined: the compiler would take malloc with delete, or new with free, for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  allocated::now += malloc_usable_size(memory);
  allocated::peak = std::max(allocated::peak.load(), allocated::now.load());
  allocated::largest = std::max(allocated::largest.load(), bytes);
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  allocated::now -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}
