#pragma once

#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint.hpp"
#include "engine/host_tensor.hpp"

namespace shard::dispatch {

/// The weights of parts of a network that are not on a device. Those of a part on the host are read once, and
/// stay in the host's memory. Those on the disk are read each time the part is to run. Parts run in the order
/// in which they were added, and a thread reads the next one on the disk meanwhile. So the host's memory has
/// those of one part on the disk at most.
class OffloadedWeights {
 public:
  /// `checkpoint` must outlive this object, and nobody else may read from it during a pass.
  explicit OffloadedWeights(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// Adds a part: its parameters, and whether they are on the disk or on the host. Returns its number.
  std::size_t add(std::vector<std::string> names, bool is_on_disk);
  /// To be called before a part runs that is on the disk, unless it follows another one: begins to read it.
  void begin_pass(std::size_t part);
  /// Gives each parameter of a part to `put`, one after the other, and lets go of those that are on the disk.
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
  /// Begins to read the next part on the disk, from this one on.
  void read_ahead(std::size_t from);

  const Checkpoint& checkpoint_;
  std::vector<Part> parts_;
  std::size_t coming_ = 0;  // the part that the thread reads
  // What parts on the disk had lain in, by size, for those that come: memory in its first use costs more than to
  // read into it. Only the thread that reads takes from it.
  std::multimap<Index, std::vector<float>> spare_;
  std::future<Weights> ahead_;  // last: its end waits for the thread, which uses all the others
};

}  // namespace shard::dispatch
