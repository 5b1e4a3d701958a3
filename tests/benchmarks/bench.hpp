#pragma once

/// What the programs of ./tests/bench share: options, timing, and results. They share main.cpp.
/// bench_collectives.cpp, bench_optimizers.cpp and bench_chapter.cpp each define measure_all.

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard::bench {

/// A batch and the network that it goes through.
struct Network {
  Index batch, model_dim, hidden_dim;
  bool operator==(const Network&) const = default;
};

/// The parsed command line.
struct Options {
  bool is_quick = false;          ///< few repetitions
  double seconds = 1;             ///< how long to measure a pair of sides
  Index layers = 2;               ///< of the chapters' networks
  std::vector<Index> bytes;       ///< of a collective's whole tensor
  std::vector<Network> networks;  ///< for the chapters
  std::string variant;            ///< the only variant of a chapter to measure; empty: all
  std::string mesh;               ///< for variants that have --mesh; empty: their default
  std::string json;               ///< a path; empty: none
};

/// All figures of a run, printed and written as JSON. Only device 0 does both.
class Results {
 public:
  /// Begins a file. \throws Error file
  Results(Communicator& world, const Options& options);
  void add(const std::string& section, nlohmann::json figure) { all_[section].push_back(std::move(figure)); }
  /// \throws Error file when it cannot be written
  void write() const;
  /// Prints at once.
  void print(const std::string& text) const;
  /// The limit of a figure, "ratio <= 1.1", with a mark if it is exceeded. Limits are set for one number of
  /// devices; empty for another.
  std::string bar(const std::string& rule, bool is_met) const;

 private:
  Communicator& world_;
  std::string path_;
  nlohmann::json all_;
};

/// One of two ways of doing the same.
struct Side {
  std::function<void()> prepare;  ///< called before each call, outside the measured time
  std::function<void()> call;
};

/// The repetitions' times, in microseconds.
struct Statistics {
  double median, lower_quartile, upper_quartile;

  /// "  12.34   5%": the median, and the range between the quartiles in percent of it.
  std::string text() const;
};

struct Pair {
  Statistics ours, reference;
  int repetitions;

  double ratio() const { return ours.median / reference.median; }
  double difference() const { return ours.median - reference.median; }
};
void to_json(nlohmann::json& json, const Pair& pair);

/// Calls both sides in turn, A B A B ..., so that a change of the machine's speed affects both, for as long as
/// the options say, but 5 times at least. Every call begins with a barrier, and its time is that of the slowest
/// device. A call with several repetitions gives the time of one. A collective.
Pair measure(const Side& ours, const Side& reference, const Options& options, int things_in_a_call = 1);

/// A tensor of random numbers in [-1, 1).
Tensor random_tensor(Shape shape);

/// The measurements of the program, on the devices of the world. A collective.
void measure_all(Communicator& world, const Options& options, Results& results);

}  // namespace shard::bench
