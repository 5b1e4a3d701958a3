#include "engine/device/books/ledger.hpp"

#include <algorithm>

#include "engine/device/this_device.hpp"

namespace shard {

std::string_view name(Purpose purpose) {
  constexpr std::array<std::string_view, num_purposes> names = {"parameters", "gradients", "optimizer",
                                                                "activations", "buffers"};
  return names[static_cast<int>(purpose)];
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
  traffic_[{group, collective}] += messages;
}

Traffic Ledger::traffic_where(std::optional<std::int64_t> group, std::optional<Collective> collective) const {
  Traffic total;
  for (const auto& [of, messages] : traffic_)
    if (of.first == group.value_or(of.first) && of.second == collective.value_or(of.second))
      total += messages;
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
  return device().state<Ledger>();
}

}  // namespace shard
