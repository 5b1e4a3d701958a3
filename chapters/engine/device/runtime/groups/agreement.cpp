#include "engine/device/runtime/groups/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

/// Mixes a number into a hash (the finalizer of splitmix64: Steele, Lea and Flood 2014).
std::uint64_t mixed(std::uint64_t hash, std::uint64_t number) {
  hash += 0x9e3779b97f4a7c15U + number;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31);
}

struct AgreementOption {
  bool is_on = true;
};

}  // namespace

Index fingerprint(const Request& request, MayDiffer difference) {
  std::uint64_t hash = 0;
  const int root = request.function == Request::broadcast ? *request.peer : -1;
  const ReduceOp op = request.op.value_or(ReduceOp::sum);
  for (int number : {static_cast<int>(request.function), static_cast<int>(op), request.axis.value_or(0),
                     request.concat_axis.value_or(0), root, request.counts ? 1 : 0})
    hash = mixed(hash, static_cast<std::uint64_t>(number));
  hash = mixed(hash, std::hash<std::string>()(request.what));
  if (difference.axis != MayDiffer::all().axis) {
    hash = mixed(hash, request.shape.size());
    for (std::size_t i = 0; i < request.shape.size(); ++i)
      if (static_cast<int>(i) != difference.axis)
        hash = mixed(hash, static_cast<std::uint64_t>(request.shape[i]));
  }
  return std::bit_cast<Index>(hash);
}

void Agreement::begin(Group& group, const Request& mine, MayDiffer difference) {
  group_ = &group;
  mine_ = &mine;
  group.begin_call();
  is_left_out_ = !device().state<AgreementOption>().is_on && difference.axis == MayDiffer::nothing().axis;
  if (is_left_out_) return;
  words_.resize(word_size * static_cast<std::size_t>(group.num_devices()));
  const bool has_extent = difference.axis >= 0;
  words_[0] = fingerprint(mine, difference);
  words_[1] =
      has_extent ? mine.shape[static_cast<std::size_t>(difference.axis)] : mine.color.value_or(no_color);
  words_[2] = mine.number;
  first_ = group.device_id();
  at_once_ = group.wire().agree(words(0, 1), words_, mine.function == Request::split);
  if (at_once_ == nullptr) return pass_on();
  first_ = 0;
  heard_ = group.num_devices();
}

std::optional<Blocked::Dependencies> Agreement::dependencies() const {
  if (at_once_ == nullptr) return posts_.dependencies();
  Blocked::Dependencies begun;
  for (int d = 0; d < group_->num_devices(); ++d)
    if (!group_->wire().is_absent(d)) begun.push_back(group_->counts().begun_by(d));
  return begun;
}

std::span<Index> Agreement::words(int first, int count) {
  return std::span(words_).subspan(word_size * static_cast<std::size_t>(first),
                                   word_size * static_cast<std::size_t>(count));
}

const Index* Agreement::word(int place) const {
  const int n = group_->num_devices();
  return &words_[word_size * static_cast<std::size_t>((place - first_ + n) % n)];
}

/// One round: sends the words that are here to the member heard_ places before, and receives new ones from the
/// member heard_ places after.
void Agreement::pass_on() {
  const int n = group_->num_devices();
  if (heard_ >= n) return;
  const int more = std::min(heard_, n - heard_);
  group_->post_receive(posts_, Channel::header, (group_->device_id() + heard_) % n, words(heard_, more));
  group_->post(posts_, Channel::header, (group_->device_id() + n - heard_) % n, words(0, more));
  heard_ += more;
}

bool Agreement::test() {
  if (is_left_out_) return true;
  if (at_once_ != nullptr && !at_once_->test()) return false;
  at_once_.reset();
  while (posts_.test()) {
    if (heard_ < group_->num_devices())
      pass_on();
    else if (claims_.empty() && !all_say_the_same())
      exchange_claims();
    else
      return true;
  }
  return false;
}

bool Agreement::all_say_the_same() const {
  for (std::size_t i = word_size; i < words_.size(); i += word_size)
    if (words_[i] != words_[0]) return false;
  return true;
}

void Agreement::exchange_claims() {
  const int n = group_->num_devices();
  const auto me = static_cast<std::size_t>(group_->device_id());
  claims_.assign(static_cast<std::size_t>(n), std::vector<Index>(Claim::numbers));
  claims_[me] = claim_of(*group_, *mine_).as_numbers();
  for (int d = 0; d < n; ++d)
    if (d != group_->device_id())
      group_->post_receive(posts_, Channel::claim, d, claims_[static_cast<std::size_t>(d)]);
  for (int d = 0; d < n; ++d)
    if (d != group_->device_id()) group_->post(posts_, Channel::claim, d, claims_[me]);
}

void Agreement::finish() {
  if (claims_.empty()) {
    group_->last_agreed = {mine_->name(), mine_->call, mine_->where, mine_->is_counted()};
    return;
  }
  std::vector<Claim> claims;
  for (const std::vector<Index>& numbers : claims_) claims.push_back(Claim::from(numbers));
  throw_disagreement(*group_, claims);
}

// ---- The error when members do not make the same call: who calls what, and where --------------------------

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
  std::istringstream lines(text);
  Claim claim;
  for (std::string* part : {&claim.call, &claim.name, &claim.place, &claim.last_agreed})
    std::getline(lines, *part);
  return claim;
}

Claim claim_of(const Group& group, const Request& mine) {
  const auto& last = group.last_agreed;
  return {mine.describe(group.members()), mine.name(),
          place_of_call(mine.call, mine.where, mine.is_counted()),
          last ? fmt::format("{} ({})", last->name, place_of_call(last->call, last->where, last->is_counted))
               : ""};
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

void shard::set_agreement(bool is_on) {
  shard::device().state<shard::runtime::AgreementOption>().is_on = is_on;
}
