#pragma once

/// How the members of a group send one another bytes: over MPI where each is a process, or in memory where one
/// process has all devices. Members are counted from 0, by their places in the group.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/split.hpp"

namespace shard::runtime {

/// A message, or an exchange of all members, in progress.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Whether it is complete. \throws Error lost when a peer is gone
  virtual bool test() = 0;
  /// Leaves a message that is not complete to itself: an error has ended its call. Whether the memory of what
  /// was to be received is free at once.
  virtual bool give_up() = 0;
};
/// Null for a message that was complete at once.
using Started = std::unique_ptr<Transfer>;

/// Messages between two members do not overtake one another with the same tag. Their memory stays untouched
/// until they are complete.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual int place() const = 0;
  virtual int size() const = 0;
  /// The wire of these members, in this order; this one is among them. A collective of these members.
  virtual std::unique_ptr<Wire> part(Index id, const std::vector<int>& places) = 0;

  /// A `synchronous` send is complete only when its receiver has begun to receive.
  virtual Started send(int to, int tag, std::span<const Index> numbers, bool synchronous) = 0;
  virtual Started send(int to, int tag, std::span<const float> values) = 0;
  /// What arrives may be shorter.
  virtual Started receive(int from, int tag, std::span<Index> numbers) = 0;
  virtual Started receive(int from, int tag, std::span<float> values) = 0;

  /// Collectives, which all members start in the same order. `all` has room for what each member sends.
  virtual Started all_gather(std::span<const Index> mine, std::span<Index> all) = 0;
  virtual Started all_to_all(std::span<const Index> for_each, std::span<Index> of_each) = 0;
  /// Texts of these lengths, one behind the other: on member 0, or on all.
  virtual Started gather(std::span<const char> mine, const std::vector<int>& lengths, std::span<char> all,
                         bool for_all) = 0;
};

/// The wire of all devices of the job: each time another one. A collective.
std::unique_ptr<Wire> wire_of_world();

}  // namespace shard::runtime
