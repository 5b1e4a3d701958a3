#pragma once

/// The transport of a group's messages: over MPI if each member is a process, or by copies in memory if one
/// process has all devices. A member is given by its place in the group, from 0.

#include <memory>
#include <span>
#include <vector>

#include "engine/device/split.hpp"

namespace shard::runtime {

/// A message, or an exchange of all members, in progress.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Whether it is complete. \throws Error lost when a peer is gone
  virtual bool test() = 0;
  /// Abandons an incomplete message, since an error has ended its call. Returns whether a receive was
  /// cancelled: then nothing will be written to its memory.
  virtual bool give_up() = 0;
};
/// Null for a message that was complete at once.
using Started = std::unique_ptr<Transfer>;

/// Messages between two members with the same tag arrive in order. Their memory must not change until they are
/// complete.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual int place() const = 0;
  virtual int size() const = 0;
  /// Makes the wire of these members, in this order; this one is among them. A collective of these members.
  virtual std::unique_ptr<Wire> subgroup(Index id, const std::vector<int>& places) = 0;

  /// A `synchronous` send is complete only when its receive has been posted.
  virtual Started send(int to, int tag, std::span<const Index> numbers, bool synchronous) = 0;
  virtual Started send(int to, int tag, std::span<const float> values) = 0;
  /// The message may be shorter than the memory.
  virtual Started receive(int from, int tag, std::span<Index> numbers) = 0;
  virtual Started receive(int from, int tag, std::span<float> values) = 0;

  /// Collectives, which all members start in the same order. `all` has room for every member's contribution.
  virtual Started all_gather(std::span<const Index> mine, std::span<Index> all) = 0;
  virtual Started all_to_all(std::span<const Index> for_each, std::span<Index> of_each) = 0;
  /// Concatenates the members' texts, which have these lengths, on member 0 or on all.
  virtual Started gather(std::span<const char> mine, const std::vector<int>& lengths, std::span<char> all,
                         bool for_all) = 0;

  /// Whether another member stands for this one, since both do the same (emu/local/absence.hpp).
  virtual bool is_absent(int) const { return false; }
  /// Called where a call treats members in different ways: the absent ones are then not alike.
  virtual void treats_members_differently() {}
  /// Gathers the words of a call in one exchange, where all members share memory; null where they send messages.
  /// In a split, the words of alike members may differ.
  virtual Started agree(std::span<const Index>, std::span<Index>, bool) { return nullptr; }
};

/// Makes a new wire of all devices of the job. A collective.
std::unique_ptr<Wire> wire_of_world();

}  // namespace shard::runtime
