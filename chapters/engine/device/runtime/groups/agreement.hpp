#pragma once

/// The check that all members of a group make the same call. Each sends a fingerprint of its call to all
/// others: over memory where all see the same, which is one exchange, or else in ceil(log2 n) messages. If
/// fingerprints differ, the members exchange descriptions of their calls, for an error that says who calls what.

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/device/runtime/groups/group.hpp"

namespace shard::runtime {

/// The extents of the argument's shape that may differ between devices.
struct MayDiffer {
  int axis;
  static MayDiffer nothing() { return {-1}; }
  static MayDiffer along(int axis) { return {axis}; }
  static MayDiffer all() { return {-2}; }
};

/// A hash of what must be equal in the requests of all members.
Index fingerprint(const Request& request, MayDiffer difference);

/// The all-gather of fingerprints by Bruck's algorithm: each round doubles the number of members whose
/// fingerprints are here (Bruck, Ho, Kipnis, Upfal and Weathersby 1997, section 3).
class Agreement : public Awaited {
 public:
  /// Begins the exchange. `difference` is equal on members that make the same call. If nothing may differ and
  /// set_agreement has switched the agreement off, it is complete at once.
  void begin(Group& group, const Request& mine, MayDiffer difference);

  bool test() override;
  std::optional<Blocked::Dependencies> dependencies() const override;
  /// \throws Error mismatch unless all members make the same call.
  void finish() override;
  /// Abandons its messages, since an error has ended the call.
  void give_up() { posts_.give_up(), at_once_.reset(); }

  /// The extent of a member's shape along the axis that may differ; of a split, its color, or `no_color`. Known once
  /// the exchange is complete.
  Index extent_of(int place) const { return word(place)[1]; }
  static constexpr Index no_color = std::numeric_limits<Index>::min();
  /// A member's number.
  Index number_of(int place) const { return word(place)[2]; }

 private:
  static constexpr std::size_t word_size = 3;  // fingerprint, extent, number
  std::span<Index> words(int first, int count);
  const Index* word(int place) const;
  void pass_on();
  bool all_say_the_same() const;
  void exchange_claims();

  Group* group_ = nullptr;
  const Request* mine_ = nullptr;
  bool is_left_out_ = false;
  int heard_ = 1;                           // members whose words have arrived or are being received
  int first_ = 0;                           // the place of the member whose words come first in words_
  std::vector<Index> words_;                // of that member, the next one in the ring, and so on
  std::vector<std::vector<Index>> claims_;  // by member: a Claim as numbers, if fingerprints differ
  Posts posts_;
  Started at_once_;  // instead of rounds, where members share memory
};

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
