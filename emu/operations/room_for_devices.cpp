/// The memory that devices on the CPU can use.

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "engine/device/books/memory.hpp"

namespace shard {

namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();

double address_space() {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? static_cast<double>(limit.rlim_cur) : no_limit;
}

/// Linux's estimate of the memory that is available without swapping.
double available_memory() {
  std::ifstream lines("/proc/meminfo");
  for (std::string word; lines >> word;) {
    double kibibytes = 0;
    if (word == "MemAvailable:" && lines >> kibibytes) return kibibytes * 1024;
  }
  return no_limit;
}

/// The number at the beginning of a file; no limit if there is no such file or number ("max").
double limit_in(const std::string& path) {
  double bytes = no_limit;
  return std::ifstream(path) >> bytes ? bytes : no_limit;
}

/// The smallest limit of this process's control groups (versions 1 and 2) and of their parents.
double control_group() {
  double smallest = no_limit;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::string group = line.substr(line.rfind(':') + 1);
    for (bool is_root = false; !is_root; group.erase(std::min(group.rfind('/'), group.size()))) {
      is_root = group.empty();
      smallest = std::min({smallest, limit_in("/sys/fs/cgroup" + group + "/memory.max"),
                           limit_in("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes")});
    }
  }
  return smallest;
}

}  // namespace

std::optional<Room> room_for_devices() {
  return Room{address_space(), std::min(available_memory(), control_group())};
}

bool tensors_have_elements() {
  return true;
}

std::optional<std::vector<std::string>> results_of_job(int, AlikeDevices,
                                                       const std::function<std::string(Communicator&)>&) {
  return std::nullopt;
}

}  // namespace shard
