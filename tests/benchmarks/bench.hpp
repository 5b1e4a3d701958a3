#pragma once

/// What the programs of ./tests/bench share: options, timing, and where figures go. main.cpp is the main
/// function of all of them; collectives.cpp, optimizers.cpp and chapter.cpp each define what theirs measures.

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

/// What the command line says.
struct Options {
  bool is_quick = false;          ///< few repetitions
  bool appends = false;           ///< to the figures of an earlier program
  Index layers = 2;               ///< of the chapters' networks
  std::vector<Index> bytes;       ///< of a collective's whole tensor
  std::vector<Network> networks;  ///< for the chapters
  std::string variant;            ///< the only one of a chapter that is measured; empty: all
  std::string mesh;               ///< of variants that have --mesh; empty: their own
  std::string json;               ///< a file; empty: none
};

/// All figures of a run, on the screen and as JSON. Only device 0's reach either.
class Results {
 public:
  /// Begins a file, or reads the one that an earlier program has begun. \throws Error file
  Results(Communicator& world, const Options& options);
  void add(const std::string& section, nlohmann::json figure) { all_[section].push_back(std::move(figure)); }
  /// \throws Error file when it cannot be written
  void write() const;
  /// To the screen, at once.
  void print(const std::string& text) const;
  /// The bar that is set for a figure, "ratio <= 1.1", marked when it is missed. Bars are set for one number
  /// of devices; nothing for another.
  std::string bar(const std::string& rule, bool is_met) const;

 private:
  Communicator& world_;
  std::string path_;
  nlohmann::json all_;
};

/// One of two ways to do a thing.
struct Side {
  std::function<void()> prepare;  ///< before each call, outside its time
  std::function<void()> call;
};

/// Of the repetitions' times, in microseconds.
struct Statistics {
  double median, lower_quartile, upper_quartile;

  /// "  12.34   5%": the median, and the distance of the quartiles in percent of it.
  std::string text() const;
};

/// What came of a comparison.
struct Pair {
  Statistics ours, reference;
  int repetitions;

  double ratio() const { return ours.median / reference.median; }
  double difference() const { return ours.median - reference.median; }
};
void to_json(nlohmann::json& json, const Pair& pair);

/// How long a pair is measured: so many seconds, but at least and at most so many repetitions.
struct Budget {
  double seconds;
  int least, most;
};

/// Calls both in turn, A B A B ..., so that a drift of the machine's speed meets both. Every call starts from
/// a barrier, and its time is that of the device that takes longest; a call that does a thing several times
/// gives the time of one. A collective.
Pair measure(const Side& ours, const Side& reference, Budget budget, int things_in_a_call = 1);

/// A tensor of random numbers in [-1, 1).
Tensor random_tensor(Shape shape);

/// What the program measures, on the devices of the world. A collective.
void measure_all(Communicator& world, const Options& options, Results& results);

}  // namespace shard::bench
