#pragma once

#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard::dispatch {

/// The weights of those parts of a network that are not on a device. Weights on the host are read once, and
/// stay in its memory. Weights on the disk are read before each run of their part. Parts run in the order in
/// which they were added, and a thread reads the next part from the disk meanwhile. So the host's memory
/// holds at most one part of those on the disk.
class OffloadedWeights {
 public:
  /// `checkpoint` must outlive this object, and no other code may read from it during a pass.
  explicit OffloadedWeights(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// Adds a part with these parameters, on the disk or on the host. Returns its number.
  std::size_t add(std::vector<std::string> names, bool is_on_disk);
  /// Begins to read a part on the disk. Call it before the first part on the disk of each pass.
  void begin_pass(std::size_t part);
  /// Passes each parameter of a part to `put`, one after the other, and frees those that are on the disk.
  /// \throws Error file, not_finite as the checkpoint does
  void bring_in(std::size_t part, const std::function<void(const std::string& name, const HostTensor&)>& put);

 private:
  using Weights = std::map<std::string, HostTensor>;
  struct Part {
    std::vector<std::string> names;
    bool is_on_disk;
    Weights on_host{};
  };
  Weights read(const std::vector<std::string>& names);
  void read(const std::string& name, HostTensor& into) const;
  /// Begins to read the first part on the disk from this number on.
  void read_ahead(std::size_t from);

  const Checkpoint& checkpoint_;
  std::vector<Part> parts_;
  std::size_t coming_ = 0;  // the part that the thread reads
  // Memory of earlier parts on the disk, by size, for the next ones: the first use of new memory costs more
  // than reading. Only the reading thread takes from it.
  std::multimap<Index, std::vector<float>> spare_;
  std::future<Weights> ahead_;  // last member: its destructor waits for the thread, which uses the others
};

}  // namespace shard::dispatch
