#include "engine/program/step/memory_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "engine/device/books/memory.hpp"

namespace shard {

namespace {

/// The number of devices on this host: all of them, unless a launcher says otherwise.
int devices_here(const Communicator& group) {
  const char* count = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  return std::clamp(count == nullptr ? group.num_devices() : std::atoi(count), 1, group.num_devices());
}

std::string in_units(double bytes) {
  constexpr double mebibyte = 1 << 20;
  return bytes < 1024 * mebibyte ? fmt::format("{:.0f} MiB", bytes / mebibyte)
                                 : fmt::format("{:.1f} GiB", bytes / mebibyte / 1024);
}

[[noreturn]] void refuse_sizes(double room, double needed, const std::string& where) {
  throw Error(Code::missing,
              "train: expected sizes that need at most {} {}, given sizes that need {} or more",
              in_units(room), where, in_units(needed));
}

/// `each`: bytes needed by the device that holds most; `all`: by all devices of the job together.
void require_room(const Communicator& group, const std::optional<Room>& room, double each, double all) {
  if (!room) return;
  const int here = devices_here(group);
  const double together = all * here / group.num_devices();
  if (each > room->each)
    refuse_sizes(room->each, each, "on a device, its limit of address space (ulimit -v)");
  if (together > room->together)
    refuse_sizes(room->together, together,
                 fmt::format("on the {} device{} of this host together", here, here == 1 ? "" : "s"));
}

/// The most bytes that each device holds in a step with this number of rows.
std::vector<Index> step_bytes(const Run& run, Index rows) {
  const Setting mine{.workload = &run.network,
                     .batch = rows,
                     .devices = run.group.num_devices(),
                     .device = run.group.device_id(),
                     .precision = precision()};
  const Costs costs = run.variant.costs(mine, run.options);
  return run.group.exchange("bytes of a step",
                            costs.step_peak_bytes(state_per_element(run.training), run.training.steps == 1));
}

}  // namespace

void require_room_for_parameters(const Communicator& group, const Workload& network,
                                 const Training& training) {
  const double bytes = network.parameter_elements() * bytes_per_element;
  // Exact mode keeps weights and gradients, whole, on every device. Training keeps each parameter, its
  // gradient and its state on one device at least.
  const double exact = 2 * bytes;
  const double trained = bytes * static_cast<double>(2 + state_per_element(training));
  require_room(group, room_for_devices(), exact, std::max(exact * group.num_devices(), trained));
}

void require_room_for_step(const Run& run, const ShardedEngine& engine) {
  const std::optional<Room> room = room_for_devices();
  const int devices = run.group.num_devices();
  const double parameters =  // each once, with gradient and state
      run.network.parameter_elements() * bytes_per_element *
      static_cast<double>(2 + state_per_element(run.training));
  // With too many rows, a closed form could overflow. So rows are doubled until the memory is exceeded.
  const bool has_form = run.variant.costs && run.network.step_data(engine) == nullptr;
  for (Index rows = 1;; rows = std::min(2 * rows, run.training.batch)) {
    double all = run.network.kept_elements(rows) * bytes_per_element + parameters;
    double each = all / devices;
    if (has_form) {
      const std::vector<Index> bytes = step_bytes(run, rows);
      each = static_cast<double>(std::ranges::max(bytes));
      all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
    }
    require_room(run.group, room, each, all);
    if (rows == run.training.batch) return;
  }
}

}  // namespace shard
