#include "engine/device/runtime/processes/doorbells.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <numeric>
#include <random>
#include <string>
#include <thread>

namespace shard::runtime {

namespace {

/// Where the first device of a host has the memory: a file without a name, which goes with the processes.
struct Shared {
  int process = 0;
  int file = -1;
  unsigned mark = 0;  // it begins with this number, so that no other file is taken for it
};

void* map(int file, std::size_t size) {
  void* memory = file < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void* map_of(const Shared& shared, std::size_t size) {
  const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  unsigned mark = 0;
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const bool is_it = pread(file, &mark, sizeof mark, 0) == sizeof mark && mark == shared.mark;
  void* memory = is_it ? map(file, size) : nullptr;
  close(file);
  return memory;
}

}  // namespace

Doorbells& Doorbells::instance() {
  static Doorbells doorbells;
  return doorbells;
}

void Doorbells::connect(MPI_Comm devices_of_host) {
  int place = 0, devices = 0, all_devices = 0;
  MPI_Comm_rank(devices_of_host, &place);
  MPI_Comm_size(devices_of_host, &devices);
  MPI_Comm_size(MPI_COMM_WORLD, &all_devices);
  const std::size_t size = sizeof(Flag) * static_cast<std::size_t>(devices + 1);  // the first one is the mark
  Shared shared;
  void* memory = nullptr;
  if (place == 0) {
    shared = {getpid(), memfd_create("shardbook", MFD_CLOEXEC), std::random_device()()};
    if (ftruncate(shared.file, static_cast<off_t>(size)) == 0) memory = map(shared.file, size);
    if (memory != nullptr) *static_cast<unsigned*>(memory) = shared.mark;
  }
  MPI_Bcast(&shared, sizeof shared, MPI_BYTE, 0, devices_of_host);
  if (place != 0) memory = map_of(shared, size);
  int is_mapped = memory != nullptr, all_have = 0;
  MPI_Allreduce(&is_mapped, &all_have, 1, MPI_INT, MPI_MIN, devices_of_host);
  if (place == 0) close(shared.file);
  if (!all_have) return;

  auto* flags = static_cast<Flag*>(memory) + 1;
  std::vector<int> places(static_cast<std::size_t>(devices)), ranks(places.size());
  std::iota(places.begin(), places.end(), 0);
  MPI_Group world = MPI_GROUP_NULL, host = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Comm_group(devices_of_host, &host);
  MPI_Group_translate_ranks(host, devices, places.data(), world, ranks.data());
  MPI_Group_free(&host);
  MPI_Group_free(&world);
  of_devices_.assign(static_cast<std::size_t>(all_devices), nullptr);
  for (std::size_t i = 0; i < ranks.size(); ++i) of_devices_[static_cast<std::size_t>(ranks[i])] = flags + i;
  mine_ = flags + place;
}

/// The fence orders the message before the look at the flag; the one of announce_sleep orders the flag before
/// the look for the message. So one of the two devices sees what the other has written.
void Doorbells::ring(int device) {
  Flag* flag = of_devices_.empty() ? nullptr : of_devices_[static_cast<std::size_t>(device)];
  if (flag == nullptr) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (flag->sleeps.load(std::memory_order_relaxed) == 0 || flag->sleeps.exchange(0) == 0) return;
  syscall(SYS_futex, &flag->sleeps, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Doorbells::announce_sleep() {
  if (mine_ == nullptr) return;
  mine_->sleeps.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Doorbells::sleep(std::chrono::nanoseconds at_most) {
  if (mine_ == nullptr) return std::this_thread::sleep_for(at_most);
  const timespec time = {at_most.count() / 1'000'000'000, at_most.count() % 1'000'000'000};
  syscall(SYS_futex, &mine_->sleeps, FUTEX_WAIT, 1, &time, nullptr, 0);
  stay_awake();
}

void Doorbells::stay_awake() {
  if (mine_ != nullptr) mine_->sleeps.store(0, std::memory_order_relaxed);
}

}  // namespace shard::runtime
