#include "emu/meta/alike.hpp"

#include "emu/local/job.hpp"

namespace shard {

std::optional<std::vector<std::string>> meta::results_of_alike(
    int devices, AlikeDevices alike, const std::function<std::string(Communicator& world)>& body) {
  auto step = [&](int device) { return device / alike.stride % alike.count; };
  auto first = [&](int device) { return device - step(device) * alike.stride; };
  auto last = [&](int device) { return first(device) + (alike.count - 1) * alike.stride; };
  local::Absence absence;
  for (int d = 0; d < devices; ++d)
    if (d != first(d) && d != last(d)) absence.devices[d] = {first(d), last(d), step(d), alike.count - 1};

  std::vector<std::string> results(static_cast<std::size_t>(devices));
  bool are_alike = true;
  auto run = [&](Communicator& world) {
    results[static_cast<std::size_t>(world.device_id())] = body(world);
    are_alike = !absence.is_refuted;  // the last device to end decides
  };
  try {
    local::run_job(devices, run, &absence);
  } catch (const Error&) {
    return std::nullopt;
  }
  for (int d = 0; d < devices; ++d) {
    std::string& mine = results[static_cast<std::size_t>(d)];
    const std::string& of_first = results[static_cast<std::size_t>(first(d))];
    if (absence.devices.contains(d)) mine = of_first;
    are_alike &= mine == of_first;
  }
  if (!are_alike) return std::nullopt;
  return results;
}

std::optional<std::vector<std::string>> results_of_job(
    int devices, AlikeDevices alike, const std::function<std::string(Communicator& world)>& body) {
  if (alike.count > 2)
    if (auto results = meta::results_of_alike(devices, alike, body)) return results;
  std::vector<std::string> results(static_cast<std::size_t>(devices));
  local::run_job(devices, [&](Communicator& world) {
    results[static_cast<std::size_t>(world.device_id())] = body(world);
  });
  return results;
}

}  // namespace shard
