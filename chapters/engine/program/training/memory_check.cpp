#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "engine/device/books/memory.hpp"
#include "engine/program/training/step.hpp"

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
std::vector<Index> step_bytes(Communicator& group, const Variant& variant, const Workload& network,
                              const Arguments& arguments, Index rows) {
  const Setting mine{.workload = &network,
                     .batch = rows,
                     .devices = group.num_devices(),
                     .device = group.device_id(),
                     .precision = precision()};
  const Costs costs = variant.costs(mine, arguments.options);
  return group.exchange("bytes of a step",
                        costs.step_peak_bytes(state_per_element(arguments), arguments.steps == 1));
}

}  // namespace

void require_room_for_parameters(const Communicator& group, const Workload& network,
                                 const Arguments& arguments) {
  const double bytes = network.parameter_elements() * bytes_per_element;
  // Exact mode keeps weights and gradients, whole, on every device. Training keeps each parameter, its
  // gradient and its state on one device at least.
  const double exact = 2 * bytes;
  const double trained = bytes * static_cast<double>(2 + state_per_element(arguments));
  require_room(group, room_for_devices(), exact, std::max(exact * group.num_devices(), trained));
}

void require_room_for_step(Communicator& group, const Variant& variant, const Workload& network,
                           const ShardedEngine& engine, const Arguments& arguments) {
  const std::optional<Room> room = room_for_devices();
  const int devices = group.num_devices();
  const double parameters =  // each once, with gradient and state
      network.parameter_elements() * bytes_per_element *
      static_cast<double>(2 + state_per_element(arguments));
  // With too many rows, a closed form could overflow. So rows are doubled until the memory is exceeded.
  const bool has_form = variant.costs && network.step_data(engine) == nullptr;
  for (Index rows = 1;; rows = std::min(2 * rows, arguments.batch)) {
    double all = network.kept_elements(rows) * bytes_per_element + parameters;
    double each = all / devices;
    if (has_form) {
      const std::vector<Index> bytes = step_bytes(group, variant, network, arguments, rows);
      each = static_cast<double>(std::ranges::max(bytes));
      all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
    }
    require_room(group, room, each, all);
    if (rows == arguments.batch) return;
  }
}

}  // namespace shard
