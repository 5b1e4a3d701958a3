#include "engine/device/ledger.hpp"

#include <algorithm>

namespace shard {

std::string_view name(Purpose purpose) {
  constexpr std::array<std::string_view, num_purposes> names = {"parameters", "gradients", "optimizer",
                                                                "activations", "buffers"};
  return names[static_cast<int>(purpose)];
}

std::string_view name(Collective collective) {
  constexpr std::array<std::string_view, num_collectives> names = {
      "barrier",    "send",           "send_async", "all_gather",
      "all_reduce", "reduce_scatter", "all_to_all", "broadcast"};
  return names[static_cast<int>(collective)];
}

void Ledger::allocated(Purpose purpose, std::int64_t bytes) {
  int p = static_cast<int>(purpose);
  live_[p] += bytes;
  live_total_ += bytes;
  peak_[p] = std::max(peak_[p], live_[p]);
  peak_total_ = std::max(peak_total_, live_total_);
}

void Ledger::released(Purpose purpose, std::int64_t bytes) {
  live_[static_cast<int>(purpose)] -= bytes;
  live_total_ -= bytes;
}

void Ledger::moved(Purpose from, Purpose to, std::int64_t bytes) {
  released(from, bytes);
  allocated(to, bytes);
}

void Ledger::sent(Collective collective, std::int64_t bytes) {
  traffic_[static_cast<int>(collective)] += Traffic{1, bytes};
}

Traffic Ledger::traffic() const {
  Traffic total;
  for (const Traffic& t : traffic_) total += t;
  return total;
}

void Ledger::reset() {
  peak_ = live_;
  peak_total_ = live_total_;
  traffic_ = {};
  flops_ = 0;
}

Ledger& ledger() {
  static Ledger books;
  return books;
}

}  // namespace shard
