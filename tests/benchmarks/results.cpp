#include <mpi.h>

#include <fstream>
#include <thread>

#include "engine/device/books/products_by.hpp"
#include "engine/files/regular_file.hpp"
#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

namespace {

/// The processor's name in Linux.
std::string processor() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, whole.find(','));
}

}  // namespace

Results::Results(Communicator& world, const Options& options) : world_(world), path_(options.json) {
  const std::string machine = fmt::format("{} cores of {}; {}; {}", std::thread::hardware_concurrency(),
                                          processor(), mpi_version(), products_by());
  all_ = {{"devices", world_.num_devices()},
          {"quick", options.is_quick},
          {"machine", machine},
          {"compiler", __VERSION__}};
  write();  // fails now if the file cannot be written
  const int devices = world_.num_devices();
  print(fmt::format("{} device{} on {}\n", devices, devices == 1 ? "" : "s", machine));
}

void Results::write() const {
  if (path_.empty() || world_.device_id() != 0) return;
  replace_file(path_, all_.dump(1) + "\n");
}

std::string Results::bar(const std::string& rule, bool is_met) const {
  if (world_.num_devices() != devices_of_bars()) return "";
  return rule + (is_met ? "" : ": missed");
}

void Results::print(const std::string& text) const {
  if (world_.device_id() != 0) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);  // prints each figure at once
}

}  // namespace shard::bench
