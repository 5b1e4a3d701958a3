#include "engine/device/books/ledger.hpp"

#include <algorithm>

#include "engine/device/this_device.hpp"

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
  static_assert(!names.back().empty());
  return names[static_cast<int>(collective)];
}

void Ledger::allocated(Purpose purpose, std::int64_t bytes) {
  int p = static_cast<int>(purpose);
  live_[p] += bytes;
  live_total_ += bytes;
  peak_[p] = std::max(peak_[p], live_[p]);
  if (live_total_ <= peak_total_) return;
  peak_total_ = live_total_;
  peak_line_ = current_call_site();
}

void Ledger::released(Purpose purpose, std::int64_t bytes) {
  live_[static_cast<int>(purpose)] -= bytes;
  live_total_ -= bytes;
}

void Ledger::moved(Purpose from, Purpose to, std::int64_t bytes) {
  released(from, bytes);
  allocated(to, bytes);
}

void Ledger::sent(std::int64_t group, Collective collective, const Traffic& messages) {
  traffic_[group][static_cast<std::size_t>(collective)] += messages;
}

Traffic Ledger::traffic(Collective collective) const {
  Traffic total;
  for (const auto& [group, calls] : traffic_) total += calls[static_cast<std::size_t>(collective)];
  return total;
}

Traffic Ledger::traffic() const {
  Traffic total;
  for (const auto& [group, calls] : traffic_) total += traffic_in(group);
  return total;
}

Traffic Ledger::traffic_in(std::int64_t group, Collective collective) const {
  const auto found = traffic_.find(group);
  return found == traffic_.end() ? Traffic{} : found->second[static_cast<std::size_t>(collective)];
}

Traffic Ledger::traffic_in(std::int64_t group) const {
  Traffic total;
  for (int c = 0; c < num_collectives; ++c) total += traffic_in(group, static_cast<Collective>(c));
  return total;
}

void Ledger::reset() {
  peak_ = live_;
  peak_total_ = live_total_;
  peak_line_ = {};
  traffic_.clear();
  flops_ = 0;
}

Ledger& ledger() {
  return device().part<Ledger>();
}

}  // namespace shard
