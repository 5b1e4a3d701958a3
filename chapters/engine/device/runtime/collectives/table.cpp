/// What all rows share, and those of calls that send no tensor.

#include <fmt/format.h>

#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/notes.hpp"

namespace shard {

std::string_view name(Collective collective) {
  return runtime::definition_of(collective).name;
}

std::string Request::describe(const std::vector<int>& members) const {
  const auto details = runtime::definition_of(function).details;
  return details == nullptr ? name() : name() + details(*this, members);
}

namespace runtime {

static_assert(all_rows.size() == static_cast<std::size_t>(Collective::verify_replicated) + 1);

namespace {

/// Collects the number that each device announces; of a split, all keys and then all colors.
Task announced_numbers(Call& call) {
  call.announce(MayDiffer::all());
  co_await call.agreement();
  for (int d = 0; d < call.devices(); ++d) call.numbers.push_back(call.agreement().number_of(d));
  for (int d = 0; call.request.function == Request::split && d < call.devices(); ++d)
    call.numbers.push_back(call.agreement().extent_of(d));
}

}  // namespace

const Definition rows::split = {.name = "split", .body = announced_numbers};
const Definition rows::exchange = {.name = "an exchange", .body = announced_numbers};
const Definition rows::synchronize = {.name = "synchronize"};
const Definition rows::gather = {.name = "a gather"};
const Definition rows::gather_for_all = {.name = "a gather for all"};
const Definition rows::verify_replicated = {.name = "verify_replicated"};

void book(const Call& call) {
  const Traffic sent = definition_of(call.request.function).sent(call);
  if (sent.messages > 0) note_sent(call.request, call.group().id(), call.request.collective(), sent);
}

Traffic message_of(const Tensor& t) {
  return {t.size() > 0 ? 1 : 0, t.bytes()};
}

std::vector<Index> sizes_of(const std::vector<Range>& ranges) {
  std::vector<Index> sizes;
  for (const Range& r : ranges) sizes.push_back(r.size());
  return sizes;
}

std::vector<Range> scaled(std::vector<Range> ranges, Index of_one) {
  for (Range& r : ranges) r = {r.begin * of_one, r.end * of_one};
  return ranges;
}

}  // namespace runtime
}  // namespace shard
