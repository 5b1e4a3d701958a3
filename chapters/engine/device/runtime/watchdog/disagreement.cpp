#include "engine/device/runtime/watchdog/disagreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace shard::runtime {

namespace {

/// The members that make the same call, by their ids in the job.
struct Party {
  const Claim* claim;
  std::vector<int> devices;
  std::vector<std::string> places;  // without repetitions
};

/// By size, the largest first; of equal ones, the one with the first member.
std::vector<Party> parties_of(const Group& group, const std::vector<Claim>& claims) {
  std::vector<Party> parties;
  for (std::size_t d = 0; d < claims.size(); ++d) {
    auto party =
        std::ranges::find_if(parties, [&](const Party& p) { return p.claim->call == claims[d].call; });
    if (party == parties.end()) party = parties.insert(party, {&claims[d], {}, {}});
    party->devices.push_back(group.members()[d]);
    if (std::ranges::find(party->places, claims[d].place) == party->places.end())
      party->places.push_back(claims[d].place);
  }
  std::ranges::stable_sort(parties, std::ranges::greater(), [](const Party& p) { return p.devices.size(); });
  return parties;
}

/// What a reader should check first.
std::string likely_cause(const std::vector<Party>& parties) {
  const Party& many = parties.front();
  const Party& few = parties.back();
  const bool same_name =
      std::ranges::all_of(parties, [&](const Party& p) { return p.claim->name == many.claim->name; });
  const bool some_alone = few.devices.size() < many.devices.size();
  if (same_name)
    return fmt::format("the calls' order, shapes, axes, operations or roots must fit: see what {} passes",
                       some_alone && few.devices.size() == 1 ? devices_text(few.devices) : "each device");
  if (some_alone)
    return fmt::format(
        "look at what {} alone {}: a call that depends on the device's id, or another order of calls",
        devices_text(few.devices), few.devices.size() == 1 ? "does" : "do");
  return "look for a call that depends on the device's id, or for another order of calls";
}

}  // namespace

std::vector<Index> Claim::as_numbers() const {
  std::string text = fmt::format("{}\n{}\n{}\n{}", call, name, place, last_agreed);
  text.resize(numbers * sizeof(Index), '\0');
  std::vector<Index> row(numbers);
  std::memcpy(row.data(), text.data(), text.size());
  return row;
}

Claim Claim::from(const std::vector<Index>& row) {
  std::string text(row.size() * sizeof(Index), '\0');
  std::memcpy(text.data(), row.data(), text.size());
  text.resize(std::min(text.find('\0'), text.size()));
  Claim claim;
  std::size_t begin = 0;
  for (std::string* part : {&claim.call, &claim.name, &claim.place, &claim.last_agreed}) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    *part = text.substr(std::min(begin, text.size()), end - std::min(begin, text.size()));
    begin = end + 1;
  }
  return claim;
}

Claim claim_of(const Group& group, const Request& mine) {
  const auto& last = group.last_agreed;
  return {mine.describe(group.members()), mine.name(), place_of_call(mine.call, mine.where),
          last ? fmt::format("{} ({})", last->name, place_of_call(last->call, last->where)) : ""};
}

void throw_disagreement(const Group& group, const std::vector<Claim>& claims) {
  const std::vector<Party> parties = parties_of(group, claims);
  const std::string& last = claims.front().last_agreed;
  std::string text = fmt::format("the devices{} do not make the same call{}", group.in_group(),
                                 last.empty() ? "" : " after " + last);
  for (const Party& p : parties)
    text += fmt::format("\n  {} {} {} ({})", devices_text(p.devices),
                        p.devices.size() == 1 ? "calls" : "call", p.claim->call, fmt::join(p.places, ", "));
  throw Error(Code::mismatch, text + "\n  " + likely_cause(parties));
}

}  // namespace shard::runtime
