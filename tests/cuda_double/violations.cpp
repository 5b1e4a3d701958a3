// How the double ends a program, the objects that a program must free, and errors that tests plant.

#include <cublas_v2.h>
#include <fmt/format.h>
#include <mpi.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "double.hpp"
#include "engine/device/runtime/watchdog/flight_record.hpp"
#include "nvtx3/nvToolsExt.h"

namespace cuda_double {

using namespace std::chrono_literals;

int open_groups = 0;

namespace {

void at_exit();

struct Books {
  std::map<const void*, const char*> held;
  struct Plan {
    std::string call;
    int after;
    int error;
  };
  std::vector<Plan> plans;
  std::map<std::string, int> calls;  // how often each function was called

  Books() { std::atexit(at_exit); }
};

/// Never destroyed, since it is read at exit.
Books& books() {
  static auto* instance = new Books;
  return *instance;
}

void at_exit() {
  if (open_groups > 0) violation("at exit, a group is open");
  if (std::getenv("CUDA_DOUBLE_COUNTS") != nullptr)
    for (const auto& [call, count] : books().calls)
      fmt::print(stderr, "{} calls of {} on device {}\n", count, call, std::getenv("OMPI_COMM_WORLD_RANK"));
  if (books().held.empty()) return;
  std::map<std::string, int> left;
  for (const auto& [thing, kind] : books().held) ++left[kind];
  std::string text;
  for (const auto& [kind, count] : left) text += fmt::format(" {} {},", count, kind);
  text.pop_back();
  violation("at exit, not given back:" + text);
}

}  // namespace

void violation(const std::string& what) {
  std::fflush(stdout);
  const std::string line = "error: cuda double: " + what + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);  // in one call, since other devices write too
  std::fflush(stderr);
  auto& record = shard::runtime::FlightRecord::instance();
  const bool is_first = record.claim_printing() != shard::runtime::FlightRecord::Printer::another_device;
  if (is_first) record.leave_error(70, what);
  int is_job = 0, is_over = 0, devices = 0;
  MPI_Initialized(&is_job);
  MPI_Finalized(&is_over);
  if (is_job && !is_over) MPI_Comm_size(MPI_COMM_WORLD, &devices);
  // Several devices may print. The first to end ends all.
  if (devices > 1) std::this_thread::sleep_for(is_first ? 300ms : 3000ms);
  if (devices == 1) MPI_Abort(MPI_COMM_WORLD, 70);
  std::_Exit(70);
}

void plant(const char* call, int k, int error) {
  books().plans.push_back({call, k, error});
}

namespace {

int last_error = 0;
int broken = 0;  // the error that has broken the GPU

int of_plans(const char* call) {
  auto& plans = books().plans;
  for (auto plan = plans.begin(); plan != plans.end(); ++plan) {
    if (plan->call != call || plan->after-- > 0) continue;
    const int error = plan->error;
    plans.erase(plan);
    return error;
  }
  return 0;
}

}  // namespace

void count(const char* call, int times) {
  books().calls[call] += times;
}

int planted(const char* call) {
  count(call);
  if (std::string_view(call).starts_with("cublas") && broken != 0) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (std::string_view(call).starts_with("nccl") && broken != 0) return ncclUnhandledCudaError;
  if (!std::string_view(call).starts_with("cuda")) return of_plans(call);
  const int error = broken != 0 ? broken : of_plans(call);
  if (error == cudaErrorLaunchFailure) broken = error;
  if (error != 0 && error != left_out && error != cudaErrorNotReady) last_error = error;
  return error;
}

void require_no_open_group(const char* call) {
  if (open_groups > 0) violation(fmt::format("{} in an open group", call));
}

void gained(const char* kind, const void* thing) {
  books().held[thing] = kind;
}
void require_there(const char* kind, const void* thing, const char* call) {
  auto there = books().held.find(thing);
  if (there == books().held.end() || std::string_view(there->second) != kind)
    violation(fmt::format("{}: not one of {}", call, kind));
}
void given_back(const char* kind, const void* thing, const char* call) {
  require_there(kind, thing, call);
  books().held.erase(thing);
}

}  // namespace cuda_double

namespace {

int open_ranges = 0;
std::vector<std::string> begun_ranges;

}  // namespace

const std::vector<std::string>& cuda_double::ranges() {
  return begun_ranges;
}

int nvtxRangePushA(const char* name) {
  begun_ranges.push_back(std::string(static_cast<std::size_t>(2 * open_ranges), ' ') + name);
  return open_ranges++;
}

int nvtxRangePop() {
  if (open_ranges == 0) cuda_double::violation("nvtxRangePop without nvtxRangePushA");
  return --open_ranges;
}

/// The error of the last call that failed, even if later calls have succeeded.
cudaError_t cudaGetLastError() {
  using namespace cuda_double;
  return static_cast<cudaError_t>(std::exchange(last_error, broken));
}
