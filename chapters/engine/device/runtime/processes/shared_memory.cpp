#include "engine/device/runtime/processes/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

constexpr std::size_t cache_line = 64;
constexpr Index num_lines = 1 << 15;  // of all groups of a host: 2 MiB, of which those in use take memory
// Messages are quicker where more devices share a core: zero3 on 64 devices and 2 cores takes 72 ms a step, not 80.
constexpr int most_per_core = 4;

}  // namespace

struct alignas(cache_line) SharedWords::Line {
  std::atomic<Index> call;  // whose words these are
  std::array<Index, most> words;
};

struct alignas(cache_line) SharedMemory::Head {
  std::atomic<Index> lines_taken;
  Index job;  // a process in a container could open the file of another one
};

SharedWords::Line& SharedWords::line(std::size_t member, Index call) const {
  return lines_[static_cast<std::size_t>(call % 2) * members_ + member];
}

Started SharedWords::tell(std::span<const Index> mine, std::span<Index> all) {
  class Told : public Transfer {
   public:
    Told(const SharedWords& words, Index call, std::span<Index> all)
        : words_(words), call_(call), all_(all) {}
    bool test() override {
      const std::size_t of_each = all_.size() / words_.members_;
      for (; next_ < words_.members_; ++next_) {
        const Line& from = words_.line(next_, call_);
        if (from.call.load(std::memory_order_acquire) != call_) return false;
        std::copy_n(from.words.begin(), of_each, all_.subspan(next_ * of_each).begin());
      }
      return true;
    }
    bool give_up() override { return false; }

   private:
    const SharedWords& words_;
    Index call_;
    std::span<Index> all_;
    std::size_t next_ = 0;  // the first member whose words are not read
  };

  ++call_;
  Line& here = line(place_, call_);
  std::ranges::copy(mine, here.words.begin());
  here.call.store(call_, std::memory_order_release);
  return std::make_unique<Told>(*this, call_, all);
}

SharedMemory& SharedMemory::instance() {
  return device().state<SharedMemory>();
}

void SharedMemory::begin() {
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_);
  int devices = 1, place = 0;
  MPI_Comm_size(host_, &devices);
  MPI_Comm_rank(host_, &place);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  devices_per_core_ = (devices + cores - 1) / cores;
  if (devices == 1 || devices_per_core_ > most_per_core) return;
  // A file without a name, which the others open through its process: nothing remains of it, and the folder of shared
  // memory, which may be small in a container, is not needed.
  const std::size_t bytes = sizeof(Head) + num_lines * sizeof(SharedWords::Line);
  std::array<Index, 3> where = {getpid(), -1, std::chrono::steady_clock::now().time_since_epoch().count()};
  int file = place == 0 ? memfd_create("shardbook", MFD_CLOEXEC) : -1;
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) where[1] = file;
  MPI_Bcast(where.data(), 3, MPI_INT64_T, 0, host_);
  if (place > 0 && where[1] >= 0)
    file = open(fmt::format("/proc/{}/fd/{}", where[0], where[1]).c_str(), O_RDWR | O_CLOEXEC);
  struct stat about = {};
  const bool is_it = file >= 0 && fstat(file, &about) == 0 && about.st_size == static_cast<off_t>(bytes);
  void* memory = is_it ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (place == 0 && memory != MAP_FAILED) static_cast<Head*>(memory)->job = where[2];
  MPI_Barrier(host_);
  int is_there = memory != MAP_FAILED && static_cast<Head*>(memory)->job == where[2] ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &is_there, 1, MPI_INT, MPI_MIN, host_);
  if (file >= 0) close(file);
  if (is_there == 0) return;
  head_ = static_cast<Head*>(memory);
  lines_ = reinterpret_cast<SharedWords::Line*>(head_ + 1);
}

std::unique_ptr<SharedWords> SharedMemory::words_of(MPI_Comm comm) {
  int size = 1, place = 0, on_this_host = 0;
  MPI_Comm_size(comm, &size);
  MPI_Comm_rank(comm, &place);
  if (head_ == nullptr || size == 1) return nullptr;
  MPI_Group members = MPI_GROUP_NULL, of_host = MPI_GROUP_NULL, both = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &members);
  MPI_Comm_group(host_, &of_host);
  MPI_Group_intersection(members, of_host, &both);
  MPI_Group_size(both, &on_this_host);
  for (MPI_Group* group : {&members, &of_host, &both}) MPI_Group_free(group);
  if (on_this_host < size) return nullptr;
  const Index lines = 2 * size;
  Index first = 0;
  if (place == 0) first = head_->lines_taken.fetch_add(lines);
  MPI_Bcast(&first, 1, MPI_INT64_T, 0, comm);
  if (first + lines > num_lines) return nullptr;
  return std::make_unique<SharedWords>(lines_ + first, place, size);
}

}  // namespace shard::runtime
