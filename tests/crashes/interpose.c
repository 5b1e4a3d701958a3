/* Stops a program at one of its calls to the operating system, from the first folder that it makes for a
 * checkpoint on. CRASH_CALL: which call, from 1 on; CRASH_HOW: "after" (it is killed then), "EIO" or "ENOSPC"
 * (the call fails). CRASH_COUNT: a file for the number of calls that were made. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long calls = 0;
static int is_saving = 0;

static int is_regular(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

/* Whether this is the wanted call. Those on pipes and sockets, which the launcher's library makes, do not count. */
static int is_next(int counts) {
  const char* wanted = getenv("CRASH_CALL");
  return is_saving && counts && ++calls == (wanted ? atol(wanted) : 0);
}

static int is_how(const char* how) {
  const char* given = getenv("CRASH_HOW");
  return given && strcmp(given, how) == 0;
}

__attribute__((destructor)) static void tell(void) {
  const char* path = getenv("CRASH_COUNT");
  FILE* out = path && is_saving ? fopen(path, "w") : NULL;
  if (!out) return;
  fprintf(out, "%ld\n", calls);
  fclose(out);
}

/* Makes the call, or not, as the environment says. */
#define CALL(type, name, counts, parameters, arguments)     \
  type name parameters {                                    \
    type(*real) parameters = dlsym(RTLD_NEXT, #name);       \
    const int is_here = is_next(counts);                    \
    if (is_here && (is_how("EIO") || is_how("ENOSPC"))) {   \
      errno = is_how("EIO") ? EIO : ENOSPC;                 \
      return -1;                                            \
    }                                                       \
    const type result = real arguments;                     \
    if (is_here && is_how("after")) kill(getpid(), SIGKILL); \
    return result;                                          \
  }

CALL(ssize_t, write, is_regular(fd), (int fd, const void* data, size_t bytes), (fd, data, bytes))
CALL(int, fsync, 1, (int fd), (fd))
CALL(int, linkat, 1, (int a, const char* from, int b, const char* to, int flags), (a, from, b, to, flags))
CALL(int, renameat, 1, (int a, const char* from, int b, const char* to), (a, from, b, to))
CALL(int, renameat2, 1, (int a, const char* from, int b, const char* to, unsigned flags), (a, from, b, to, flags))
CALL(int, unlinkat, 1, (int fd, const char* path, int flags), (fd, path, flags))
CALL(int, flock, 1, (int fd, int how), (fd, how))

int mkdir(const char* path, mode_t mode) {
  int (*real)(const char*, mode_t) = dlsym(RTLD_NEXT, "mkdir");
  if (strstr(path, "/.shardbook-")) is_saving = 1;
  const int is_here = is_next(1);
  const int result = real(path, mode);
  if (is_here && is_how("after")) kill(getpid(), SIGKILL);
  return result;
}

int open(const char* path, int flags, ...) {
  int (*real)(const char*, int, ...) = dlsym(RTLD_NEXT, "open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const int is_here = is_next(1);
  if (is_here && (is_how("EIO") || is_how("ENOSPC"))) {
    errno = is_how("EIO") ? EIO : ENOSPC;
    return -1;
  }
  const int result = real(path, flags, mode);
  if (is_here && is_how("after")) kill(getpid(), SIGKILL);
  return result;
}
