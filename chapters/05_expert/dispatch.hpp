#pragma once

/// Dispatch: which choices get a slot of their expert, and in which order tokens are sent. Only this part of
/// the mixture needs to know what other devices' tokens chose. Lepikhin et al. 2020, "GShard", section 2.2;
/// Fedus et al. 2021, "Switch Transformers", section 2.2 (capacity).

#include <algorithm>
#include <span>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/workloads/routed_counts.hpp"

namespace shard::expert {

/// ## Slots
/// Counts the choices of some tokens, (b, k), by rank and expert: (k, E). A token's first choice has rank 0.
inline std::vector<Index> count_choices(const std::vector<Index>& experts, Index top_k, Index num_experts) {
  std::vector<Index> counts(static_cast<std::size_t>(top_k * num_experts));
  for (std::size_t i = 0; i < experts.size(); ++i) {
    Index rank = static_cast<Index>(i) % top_k;
    ++counts[static_cast<std::size_t>(rank * num_experts + experts[i])];
  }
  return counts;
}

/// `chosen` is (devices, k, E). Each expert gives its slots to all first choices, then to all second ones,
/// and so on. Choices of one rank get slots in the order of their tokens; the tokens of device 0 come first,
/// then those of device 1, and so on. When an expert has no slot left, further choices are dropped.
inline RoutedCounts give_slots(std::vector<Index> chosen, int devices, Index top_k, Index num_experts,
                               Index capacity) {
  RoutedCounts counts{devices, top_k, num_experts, std::move(chosen), {}};
  counts.kept.resize(counts.chosen.size());
  for (Index e = 0; e < num_experts; ++e) {
    Index free = capacity;
    for (Index r = 0; r < top_k; ++r)
      for (int d = 0; d < devices; ++d) {
        Index kept = std::min(free, counts.at(counts.chosen, d, r, e));
        counts.kept[static_cast<std::size_t>((d * top_k + r) * num_experts + e)] = kept;
        free -= kept;
      }
  }
  return counts;
}

/// The kept choices of one device's tokens, in the order in which they are sent: by expert, then by rank,
/// then by token.
struct Plan {
  std::vector<Index> choices;  // (n)      which of the choices (b, k), counted row by row
  std::vector<Index> tokens;   // (n)      the token of each choice
  std::vector<Index> slots;    // (b, k)   where in this order a choice is, or no_slot
  std::vector<Range> experts;  // (E)      which part of this order goes to an expert
};

inline Plan make_plan(const std::vector<Index>& experts, const RoutedCounts& counts, int device) {
  const Index k = counts.top_k;
  std::vector<std::vector<Index>> queues(static_cast<std::size_t>(counts.num_experts * k));
  for (std::size_t i = 0; i < experts.size(); ++i) {
    Index rank = static_cast<Index>(i) % k;
    std::vector<Index>& queue = queues[static_cast<std::size_t>(experts[i] * k + rank)];
    if (static_cast<Index>(queue.size()) < counts.at(counts.kept, device, rank, experts[i]))
      queue.push_back(static_cast<Index>(i));
  }
  Plan plan;
  plan.slots.assign(experts.size(), no_slot);
  for (std::size_t i = 0; i < queues.size(); ++i) {
    auto begin = static_cast<Index>(plan.choices.size());
    for (Index choice : queues[i]) {
      plan.slots[static_cast<std::size_t>(choice)] = static_cast<Index>(plan.choices.size());
      plan.choices.push_back(choice);
      plan.tokens.push_back(choice / k);
    }
    auto end = static_cast<Index>(plan.choices.size());
    if (static_cast<Index>(i) % k == 0) plan.experts.push_back({begin, begin});
    plan.experts.back().end = end;
  }
  return plan;
}

/// How many rows each device sends and receives, and which of the received rows are for which expert.
struct Route {
  std::vector<Index> to;                 // (N)   rows that go to each device
  std::vector<Index> from;               // (N)   rows that come from each
  std::vector<std::vector<Index>> rows;  // of each of its experts, places among the rows that arrive
  Index arriving = 0;                    // m, the sum of `from`
};

/// Rows leave in the order of their experts, and so of the devices that own these. They arrive in the order
/// of the sending devices; rows from one device are in the order of the experts.
inline Route make_route(const RoutedCounts& counts, int device) {
  Route route;
  const Range mine = part(counts.num_experts, counts.devices, device);
  route.rows.resize(static_cast<std::size_t>(mine.size()));
  for (int d = 0; d < counts.devices; ++d) {
    const Range theirs = part(counts.num_experts, counts.devices, d);
    Index outgoing = 0;
    for (Index e = theirs.begin; e < theirs.end; ++e) outgoing += counts.kept_from(device, e);
    route.to.push_back(outgoing);
    const Index before = route.arriving;
    for (Index e = mine.begin; e < mine.end; ++e)
      for (Index i = 0; i < counts.kept_from(d, e); ++i)
        route.rows[static_cast<std::size_t>(e - mine.begin)].push_back(route.arriving++);
    route.from.push_back(route.arriving - before);
  }
  return route;
}

/// A range of a list of indices.
inline std::span<const Index> part_of(const std::vector<Index>& all, Range range) {
  return std::span(all).subspan(static_cast<std::size_t>(range.begin),
                                static_cast<std::size_t>(range.size()));
}

}  // namespace shard::expert
