#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard::runtime {

/// What a device says of its call.
struct Header {
  static constexpr Index no_call = -1;  ///< an exchange of numbers that is not a collective call
  static constexpr int most_axes = 32;

  Index collective = no_call;
  Index op = 0;
  Index axis = 0;
  Index concat_axis = 0;
  Index root = -1;   ///< the place of a broadcast's root; -1: none
  Index number = 0;  ///< a number of this device, which all members get to know
  Shape shape;
  std::string what;  ///< of an exchange of numbers: its name
  Index call = 0;    ///< the call's number among this device's calls
  SourceLine where;  ///< the line that made the call

  /// "all_gather of (2, 3) along axis 1". Errors name devices of the job, which `members` are.
  std::string describe(const std::vector<int>& members) const;
  /// "all_gather", or what an exchange of numbers is for.
  std::string name() const;
  /// "call 3 at chapters/02_data_parallel/all_reduce.hpp:41".
  std::string place() const;
};

/// "call 3 at FILE:LINE", or "call 3" where the line is not known.
std::string place_of_call(Index number, SourceLine where);

/// Which extents of the shape may differ between devices.
struct MayDiffer {
  int axis;
  static MayDiffer nothing() { return {-1}; }
  static MayDiffer along(int axis) { return {axis}; }
  static MayDiffer all() { return {-2}; }
};

/// A number that is the same for headers of the same call, and in practice for no others.
Index fingerprint(const Header& header, MayDiffer difference);

}  // namespace shard::runtime
