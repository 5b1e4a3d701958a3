#include "engine/device/runtime/meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/device/runtime/groups/agreement.hpp"
#include "engine/device/runtime/witness.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

/// The memory that a collective reads and writes.
template <class T>
struct Exchanged {
  T mine, all;
};
using Numbers = Exchanged<std::vector<Index>>;
using Texts = Exchanged<std::string>;

std::shared_ptr<Numbers> numbers_of(std::vector<Index> mine, std::size_t all) {
  return std::make_shared<Numbers>(Numbers{std::move(mine), std::vector<Index>(all)});
}

/// Collectives whose wait has ended in an error, and their memory: MPI cannot cancel a collective.
struct Abandoned {
  std::vector<std::pair<Started, std::shared_ptr<void>>> all;
};

/// Whether this device is at the end of the program.
struct End {
  bool is_reached = false;
};

/// Returns when the request is complete. If an error ends the wait, the request goes on, so its `memory` then lives as
/// long as the device.
void wait_for(Group& group, const std::string& what, Started request, std::shared_ptr<void> memory,
              Index slot = PostCounts::control_slot) {
  const Index entered = group.counts().enter(slot);
  const SourceLine where = current_call_site();
  auto describe = [&] {
    const bool is_at_end = device().state<End>().is_reached;
    const Index calls = stream().calls();
    Blocked blocked =
        wait_outside(stream(), what + group.in_group(),
                     is_at_end ? fmt::format("after {} calls", calls) : place_of_call(calls, where, false),
                     group.counts().entered_by_others(slot, entered));
    blocked.is_at_end = is_at_end;
    return blocked;
  };
  try {
    for (Wait wait; !request->test(); wait.idle(describe)) stream().resume_ready();
  } catch (...) {
    device().state<Abandoned>().all.emplace_back(std::move(request), std::move(memory));
    throw;
  }
}

std::vector<Index> numbers_of_all(Group& group, const std::string& what, Index mine) {
  if (group.num_devices() == 1) return {mine};
  const auto numbers = numbers_of({mine}, group.members().size());
  wait_for(group, what, group.wire().all_gather(numbers->mine, numbers->all), numbers);
  return numbers->all;
}

/// \throws Error mismatch, on all members, unless all of them make this gather.
void require_same_gather(Group& group, const Request& mine) {
  const Index hash = fingerprint(mine, MayDiffer::nothing());
  const std::vector<Index> hashes = numbers_of_all(group, mine.name(), hash);
  if (std::ranges::count(hashes, hash) == group.num_devices()) return;
  const std::vector<Index> claim = claim_of(group, mine).as_numbers();
  const auto size = static_cast<std::ptrdiff_t>(claim.size());
  const auto numbers = numbers_of(claim, claim.size() * group.members().size());
  wait_for(group, mine.name(), group.wire().all_gather(numbers->mine, numbers->all), numbers);
  std::vector<Claim> claims;
  for (auto at = numbers->all.begin(); at != numbers->all.end(); at += size)
    claims.push_back(Claim::from({at, at + size}));
  throw_disagreement(group, claims);
}

}  // namespace

std::vector<std::string> gather(Group& group, const Request& request) {
  const std::string& mine = request.text;
  const std::string name = request.name();
  const bool for_all = request.function == Request::gather_for_all;
  require_same_gather(group, request);
  const std::vector<Index> sizes = numbers_of_all(group, name, static_cast<Index>(mine.size()));
  const Index longest = std::ranges::max(sizes);
  // MPI counts the bytes of all devices in an int, so longer texts are sent in pieces.
  const Index piece = std::numeric_limits<int>::max() / group.num_devices();
  std::vector<std::string> texts(for_all || group.device_id() == 0 ? group.members().size() : 0);
  for (Index begin = 0; begin < longest; begin += piece) {
    std::vector<int> lengths;
    for (Index size : sizes) lengths.push_back(static_cast<int>(std::clamp<Index>(size - begin, 0, piece)));
    const auto memory = std::make_shared<Texts>();
    memory->mine =
        mine.substr(std::min(static_cast<std::size_t>(begin), mine.size()), static_cast<std::size_t>(piece));
    if (!texts.empty()) memory->all.resize(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
    wait_for(group, name, group.wire().gather(memory->mine, lengths, memory->all, for_all), memory);
    for (std::size_t d = 0, at = 0; d < texts.size(); at += static_cast<std::size_t>(lengths[d++]))
      texts[d].append(memory->all, at, static_cast<std::size_t>(lengths[d]));
  }
  return texts;
}

Index max_at_end(Group& world, Index exit_code) {
  device().state<End>().is_reached = true;
  const auto numbers = numbers_of({exit_code}, world.members().size());
  wait_for(world, "the end of the program", world.wire_of_end().all_gather(numbers->mine, numbers->all),
           numbers, PostCounts::end_slot);
  return std::ranges::max(numbers->all);
}

std::vector<Index> exchange_at_end(Group& world, const std::vector<Index>& numbers_for_each) {
  const auto numbers = numbers_of(numbers_for_each, world.members().size());
  wait_for(world, "the end of the program", world.wire_of_end().all_to_all(numbers->mine, numbers->all),
           numbers, PostCounts::end_slot);
  return numbers->all;
}

}  // namespace shard::runtime
