/// Checks the limit of address space before any library is set up.

#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

namespace shard::emu {

namespace {

/// With too little address space, OpenBLAS loops forever when it is loaded, before main. A device with one BLAS
/// thread takes 400 MiB. The C++ library is not initialized here, so only system calls are allowed.
__attribute__((no_sanitize("address", "undefined"))) void require_address_space() {
  constexpr rlim_t needed = rlim_t{512} << 20;
  constexpr const char* message =
      "error: limit of address space: expected 512 MiB or more for a device, given less (ulimit -v)\n";
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= needed) return;
  const ssize_t written = ::write(STDERR_FILENO, message, std::strlen(message));
  ::_exit(written > 0 ? 69 : 70);
}

/// Runs before the initialization of all libraries.
__attribute__((section(".preinit_array"), used)) void (*const first)() = require_address_space;

}  // namespace

}  // namespace shard::emu
