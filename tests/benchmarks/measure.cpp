#include <mpi.h>

#include <algorithm>
#include <chrono>

#include "engine/workloads/random.hpp"
#include "tests/benchmarks/bench.hpp"

namespace shard::bench {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double timed_call(const Side& side) {
  side.prepare();
  MPI_Barrier(MPI_COMM_WORLD);
  const Clock::time_point start = Clock::now();
  side.call();
  return microseconds_since(start);
}

/// The largest time of any device, element by element.
std::vector<double> slowest_device(std::vector<double> times) {
  MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  return times;
}

Statistics statistics(std::vector<double> times, int parts) {
  std::ranges::sort(times);
  auto at = [&](double share) {  // interpolates between two times
    const double place = share * static_cast<double>(times.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, times.size() - 1);
    return (times[below] + (place - static_cast<double>(below)) * (times[above] - times[below])) / parts;
  };
  return {at(0.5), at(0.25), at(0.75)};
}

/// How often both can be called in that time, by the fastest call of a warm-up; the same on all devices.
int repetitions(const Side& ours, const Side& reference, const Options& options) {
  constexpr int warm_up = 2, least = 5, most = 4000;
  std::vector<double> rounds;
  for (int i = 0; i < warm_up; ++i) {
    const Clock::time_point start = Clock::now();
    timed_call(ours);
    timed_call(reference);
    rounds.push_back(microseconds_since(start));
  }
  const double fastest = std::ranges::min(slowest_device(rounds));
  if (options.is_quick) return least;
  return static_cast<int>(std::clamp(options.seconds * 1e6 / fastest, 1.0 * least, 1.0 * most));
}

nlohmann::json as_json(const Statistics& s) {
  return {{"median", s.median}, {"lower_quartile", s.lower_quartile}, {"upper_quartile", s.upper_quartile}};
}

}  // namespace

std::string Statistics::text() const {
  return fmt::format("{:>10.2f} {:>3.0f}%", median, 100 * (upper_quartile - lower_quartile) / median);
}

void to_json(nlohmann::json& json, const Pair& pair) {
  json = {{"ours_us", as_json(pair.ours)},
          {"reference_us", as_json(pair.reference)},
          {"repetitions", pair.repetitions}};
}

Pair measure(const Side& ours, const Side& reference, const Options& options, int things_in_a_call) {
  const int count = repetitions(ours, reference, options);
  std::vector<double> our_times, reference_times;
  for (int i = 0; i < count; ++i) {
    our_times.push_back(timed_call(ours));
    reference_times.push_back(timed_call(reference));
  }
  return {statistics(slowest_device(our_times), things_in_a_call),
          statistics(slowest_device(reference_times), things_in_a_call), count};
}

Tensor random_tensor(Shape shape) {
  CounterRandom random(1, "benchmark");
  std::vector<float> values(static_cast<std::size_t>(num_elements(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 * random.uniform(i) - 1;
  return Tensor::from_host(std::move(shape), values);
}

}  // namespace shard::bench
