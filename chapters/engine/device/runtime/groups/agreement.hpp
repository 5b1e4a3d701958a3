#pragma once

/// How the members of a group find out whether all of them make the same call. Each tells a fingerprint of
/// its call to all others, in ceil(log2 n) messages. Only if the fingerprints differ, the calls themselves
/// are exchanged, for an error that says who called what.

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/device/runtime/groups/group.hpp"

namespace shard::runtime {

/// Which extents of the shape may differ between devices.
struct MayDiffer {
  int axis;
  static MayDiffer nothing() { return {-1}; }
  static MayDiffer along(int axis) { return {axis}; }
  static MayDiffer all() { return {-2}; }
};

/// A number that is the same for requests of the same call, and in practice for no others.
Index fingerprint(const Request& request, MayDiffer difference);

/// The exchange of fingerprints. Each round doubles the number of members that this one has heard of (Bruck,
/// Ho, Kipnis, Upfal and Weathersby 1997, section 3).
class Agreement : public Awaited {
 public:
  Agreement() = default;
  /// Begins the exchange. `difference` is the same for all members that make the same call. If nothing may
  /// differ, and no agreement is wanted (set_agreement), it is complete at once.
  void begin(Group& group, const Request& mine, MayDiffer difference);

  bool test() override;
  std::optional<Blocked::Needs> needs() const override { return posts_.needs(); }
  /// \throws Error mismatch unless all members make the same call.
  void finish() override;
  /// Gives up its messages: an error has ended the call.
  void give_up() { posts_.give_up(); }

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
  int heard_ = 1;                           // members whose words are here or on their way
  std::vector<Index> words_;                // of this member, the next one, and so on
  std::vector<std::vector<Index>> claims_;  // by member: its call as a text, if the fingerprints differ
  Posts posts_;
};

}  // namespace shard::runtime
