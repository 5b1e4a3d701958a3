#include "engine/device/runtime/processes/devices_asked_for.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <sstream>

namespace shard::runtime {

namespace {

/// Variables in which a launcher tells each of its processes how many there are, and which one it is.
struct Told {
  const char* launcher;
  const char* size;
  const char* rank;
};
/// PMI's are those of MPICH, Intel MPI and others, and PMIx says no size. Slurm sets its variables of steps where srun
/// has launched a process. It sets others in all of an allocation: they are no sign that something was launched.
constexpr std::array<Told, 7> told = {{{"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                       {"MPICH or a relative", "PMI_SIZE", "PMI_RANK"},
                                       {"MPICH or a relative", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
                                       {"MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
                                       {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
                                       {"Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
                                       {"PMIx", "PMIX_RANK", "PMIX_RANK"}}};

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

/// What chapters/launch.py says in SHARDBOOK_LAUNCHED, a line each.
struct Asked {
  int devices = 0;
  std::string launcher, help;
};
std::optional<Asked> asked_by_script() {
  const char* set = std::getenv("SHARDBOOK_LAUNCHED");
  if (set == nullptr) return std::nullopt;
  std::istringstream lines(set);
  Asked asked;
  std::string devices;
  std::getline(lines, devices);
  std::getline(lines, asked.launcher);
  std::getline(lines, asked.help);
  asked.devices = std::atoi(devices.c_str());
  return asked;
}

constexpr const char* alone = "each process is alone, as where the launcher is that of another MPI";

}  // namespace

std::string wrong_number_of_devices(int given) {
  if (const std::optional<Asked> asked = asked_by_script()) {
    if (asked->devices == given) return "";
    return fmt::format("{}: expected {} devices, as asked for, given {}{}{}", asked->launcher, asked->devices,
                       given, given == 1 ? fmt::format(": {}", alone) : "", asked->help);
  }
  if (given > 1) return "";
  for (const Told& by : told)
    if (const int devices = std::max(number_in(by.size), number_in(by.rank) + 1); devices > 1)
      return fmt::format(
          "the launcher, of {} ({}): expected {} devices, as asked for, given 1: {}; ./chapters/run "
          "takes the one of this program's MPI",
          by.launcher, by.size, devices, alone);
  return "";
}

bool is_first_of_launcher() {
  return std::ranges::all_of(told, [](const Told& by) { return number_in(by.rank) == 0; });
}

}  // namespace shard::runtime
