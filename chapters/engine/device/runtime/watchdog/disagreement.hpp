#pragma once

/// The error when members do not make the same call. It says who calls what, and where.

#include <string>
#include <vector>

#include "engine/device/runtime/groups/group.hpp"

namespace shard::runtime {

/// A member's description of its call, exchanged when fingerprints differ.
struct Claim {
  static constexpr std::size_t numbers = 128;  ///< a claim's length in a message; longer texts are cut off

  std::string call;         ///< "all_reduce(sum) of (5,)"
  std::string name;         ///< "all_reduce"
  std::string place;        ///< "call 3 at FILE:LINE"
  std::string last_agreed;  ///< the last call that all members made: "barrier (call 2 at FILE:LINE)"

  std::vector<Index> as_numbers() const;
  static Claim from(const std::vector<Index>& numbers);
};
Claim claim_of(const Group& group, const Request& mine);

/// \throws Error mismatch, with the same text on all members. `claims` are in the members' order.
[[noreturn]] void throw_disagreement(const Group& group, const std::vector<Claim>& claims);

}  // namespace shard::runtime
