#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/device/call_site.hpp"

namespace shard {

/// The purpose of a block of device memory.
enum class Purpose { parameters, gradients, optimizer, activations, buffers };
inline constexpr int num_purposes = 5;

std::string_view name(Purpose purpose);

enum class Collective;  // a function of a communicator: device.hpp

/// What one device sent.
struct Traffic {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;

  Traffic& operator+=(const Traffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
  friend Traffic operator+(Traffic a, const Traffic& b) { return a += b; }
  friend Traffic operator*(std::int64_t times, const Traffic& t) {
    return {times * t.messages, times * t.bytes};
  }
  bool operator==(const Traffic&) const = default;
};

/// The ledger of one device: bytes held now and at most, messages and bytes sent, floating-point operations.
///
/// Bytes are as requested, without the allocator's rounding. Only matrix products count as operations:
/// 2 m n k for (m, k) times (k, n).
class Ledger {
 public:
  void allocated(Purpose purpose, std::int64_t bytes);
  void released(Purpose purpose, std::int64_t bytes);
  void moved(Purpose from, Purpose to, std::int64_t bytes);
  /// Books messages that were sent in the group with this Communicator::group_id(). Control messages (shapes, checks) are
  /// not booked.
  void sent(std::int64_t group, Collective collective, const Traffic& messages);
  void computed(std::int64_t flops) { flops_ += flops; }

  /// Bytes held now.
  std::int64_t live() const { return live_total_; }
  std::int64_t live(Purpose purpose) const { return live_[static_cast<int>(purpose)]; }
  /// The most bytes held at one time since the last reset, for all purposes together or for one.
  std::int64_t peak() const { return peak_total_; }
  std::int64_t peak(Purpose purpose) const { return peak_[static_cast<int>(purpose)]; }
  /// The line at which the most bytes over all purposes were held first; none before a call.
  SourceLine peak_line() const { return peak_line_; }
  /// What was sent since the last reset, by one or all kinds of call, in one or all groups.
  Traffic traffic(Collective collective) const { return traffic_where({}, collective); }
  Traffic traffic() const { return traffic_where({}, {}); }
  Traffic traffic_in(std::int64_t group, Collective collective) const {
    return traffic_where(group, collective);
  }
  Traffic traffic_in(std::int64_t group) const { return traffic_where(group, {}); }
  std::int64_t flops() const { return flops_; }

  /// Starts a measurement: sets traffic and operations to 0, and the peak to the bytes held now.
  void reset();

 private:
  Traffic traffic_where(std::optional<std::int64_t> group, std::optional<Collective> collective) const;

  std::array<std::int64_t, num_purposes> live_{};
  std::array<std::int64_t, num_purposes> peak_{};
  std::map<std::pair<std::int64_t, Collective>, Traffic> traffic_;  // by group and collective
  std::int64_t live_total_ = 0;
  std::int64_t peak_total_ = 0;
  SourceLine peak_line_;
  std::int64_t flops_ = 0;
};

/// This device's ledger.
Ledger& ledger();

}  // namespace shard
