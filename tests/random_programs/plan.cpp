#include "tests/random_programs/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "tests/harness/devices.hpp"

namespace shard::testing {

namespace {

constexpr std::string_view names[] = {
    "all_reduce", "all_gather", "all_gather",  "reduce_scatter", "all_to_all", "all_to_all", "broadcast",
    "barrier",    "send_async", "an exchange", "a gather",       "split",      "a message"};

std::string arguments(const Plan& plan, const Item& item) {
  switch (item.what) {
    case What::all_reduce:
      return fmt::format("({}) of {}", name(item.op), to_string(item.shapes[0]));
    case What::all_gather:
    case What::all_gather_of_copy:
      return fmt::format(" along axis {}", item.axis);
    case What::reduce_scatter:
      return fmt::format("({}) of {} along axis {}", name(item.op), to_string(item.shapes[0]), item.axis);
    case What::all_to_all:
      return fmt::format(" from axis {} to axis {}", item.axis, item.concat_axis);
    case What::all_to_all_of_counts:
      return fmt::format(" with counts along axis {}", item.axis);
    case What::broadcast:
      return fmt::format(" from device {}", plan.groups[static_cast<std::size_t>(item.group)].at(
                                                static_cast<std::size_t>(item.root)));
    case What::send_async:
      return fmt::format(" to [{}]", fmt::join(item.targets, ", "));
    case What::split:
      return fmt::format(" with colors [{}], keys [{}]", fmt::join(item.colors, ", "),
                         fmt::join(item.keys, ", "));
    case What::message: {
      const std::vector<int>& members = plan.groups[static_cast<std::size_t>(item.group)];
      return fmt::format(" of {} from device {}{} to {}{}", to_string(item.shapes[0]),
                         members[static_cast<std::size_t>(item.from)], item.is_posted_send ? " (posted)" : "",
                         members[static_cast<std::size_t>(item.to)],
                         item.is_posted_receive ? " (posted)" : "");
    }
    default:
      return "";
  }
}

std::string describe(const Plan& plan, const Action& action) {
  switch (action.kind) {
    case Action::Kind::start:
      return fmt::format("call {}: {}", action.item,
                         describe(plan, plan.items[static_cast<std::size_t>(action.item)]));
    case Action::Kind::poll:
      return fmt::format("poll {} for {} µs", action.item, action.amount);
    case Action::Kind::wait:
      return fmt::format("wait for {}", action.item);
    case Action::Kind::synchronize:
      return "synchronize";
    case Action::Kind::pause:
      return fmt::format("pause for {} µs", action.amount);
    default:
      return fmt::format("let a thread compute for {} µs", action.amount);
  }
}

}  // namespace

int place_in(const std::vector<int>& members, int device) {
  const auto found = std::ranges::find(members, device);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

bool is_blocking(const Item& item, bool is_sender) {
  switch (item.what) {
    case What::message:
      return is_sender ? !item.is_posted_send : !item.is_posted_receive;
    case What::barrier:
    case What::exchange:
    case What::gather:
    case What::split:
      return true;
    default:
      return false;
  }
}

bool is_counted(const Item& item) {
  return item.what != What::exchange && item.what != What::gather && item.what != What::split;
}

Index calls_of(const Plan& plan, int device) {
  return std::ranges::count_if(plan.actions[static_cast<std::size_t>(device)], [&](const Action& action) {
    return action.kind == Action::Kind::start &&
           is_counted(plan.items[static_cast<std::size_t>(action.item)]);
  });
}

std::string describe(const Plan& plan, const Item& item) {
  const std::vector<int>& members = plan.groups[static_cast<std::size_t>(item.group)];
  return fmt::format("{}{}{}", names[static_cast<std::size_t>(item.what)], arguments(plan, item),
                     item.group == 0 ? "" : fmt::format(" in group {{{}}}", fmt::join(members, ", ")));
}

std::string describe(const Plan& plan) {
  std::string text =
      fmt::format("program {} of seed {} on {} devices\n", plan.program, plan.seed, plan.devices);
  for (int d = 0; d < plan.devices; ++d) {
    text += fmt::format("device {}\n", d);
    for (const Action& action : plan.actions[static_cast<std::size_t>(d)])
      text += "  " + describe(plan, action) + "\n";
  }
  return text;
}

// ---- The arguments and expected results of calls -------------------------------------------------------

namespace {

HostTensor number(Index value) {
  return {{}, {static_cast<float>(value)}};
}

HostTensor part_of(const HostTensor& t, int axis, const std::vector<Index>& counts, int place) {
  Index begin = 0;
  for (int d = 0; d < place; ++d) begin += counts[static_cast<std::size_t>(d)];
  return sliced(t, axis, {begin, begin + counts[static_cast<std::size_t>(place)]});
}

/// Part `place` of each member's argument of an all_to_all, joined.
HostTensor exchanged(const Item& item, int place, const std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> parts;
  const int n = static_cast<int>(inputs.size());
  for (std::size_t d = 0; d < inputs.size(); ++d)
    if (item.what == What::all_to_all_of_counts)
      parts.push_back(part_of(inputs[d], item.axis, item.counts[d], place));
    else
      parts.push_back(
          sliced(inputs[d], item.axis, part(inputs[d].shape[static_cast<std::size_t>(item.axis)], n, place)));
  return joined(parts, item.what == What::all_to_all_of_counts ? item.axis : item.concat_axis);
}

/// The numbers of all members in an exchange or a gather; all get them in order, or place 0 does.
HostTensor numbers_of_all(const std::vector<HostTensor>& inputs) {
  HostTensor all{{static_cast<Index>(inputs.size())}, {}};
  for (const HostTensor& input : inputs) all.values.push_back(input.values[0]);
  return all;
}

/// The content of dst after a send_async: zeros if no member targets this one.
HostTensor targeted(const Item& item, int place, const std::vector<HostTensor>& inputs) {
  for (std::size_t d = 0; d < inputs.size(); ++d)
    if (item.targets[d] == place) return inputs[d];
  const Shape& shape = item.shapes[0];
  return {shape, std::vector<float>(static_cast<std::size_t>(num_elements(shape)))};
}

}  // namespace

HostTensor input_of(const Plan& plan, int item, int place) {
  const Item& i = plan.items[static_cast<std::size_t>(item)];
  const int device = plan.groups[static_cast<std::size_t>(i.group)][static_cast<std::size_t>(place)];
  const auto seed = static_cast<int>((plan.seed * 1'000'003 + static_cast<std::uint64_t>(plan.program) * 64 +
                                      static_cast<std::uint64_t>(item)) %
                                     2'000'000'011);
  if (i.what == What::exchange || i.what == What::gather) return number((seed + 7919 * device) % 100'000);
  if (i.what == What::barrier || i.what == What::split) return {{0}, {}};
  if (i.what == What::message) return integers(i.shapes[0], device, seed);
  return integers(i.shapes[static_cast<std::size_t>(place)], device, seed);
}

std::vector<HostTensor> inputs_of(const Plan& plan, int item) {
  const Item& i = plan.items[static_cast<std::size_t>(item)];
  std::vector<HostTensor> inputs;
  for (std::size_t d = 0; d < plan.groups[static_cast<std::size_t>(i.group)].size(); ++d)
    inputs.push_back(input_of(plan, item, static_cast<int>(d)));
  return inputs;
}

HostTensor expected_result(const Plan& plan, int item, int place, const std::vector<HostTensor>& inputs) {
  const Item& i = plan.items[static_cast<std::size_t>(item)];
  switch (i.what) {
    case What::all_reduce:
      return reduced(inputs, i.op);
    case What::reduce_scatter: {
      const Index extent = i.shapes[0][static_cast<std::size_t>(i.axis)];
      return sliced(reduced(inputs, i.op), i.axis, part(extent, static_cast<int>(inputs.size()), place));
    }
    case What::all_gather:
    case What::all_gather_of_copy:
      return joined(inputs, i.axis);
    case What::all_to_all:
    case What::all_to_all_of_counts:
      return exchanged(i, place, inputs);
    case What::broadcast:
      return inputs[static_cast<std::size_t>(i.root)];
    case What::send_async:
      return targeted(i, place, inputs);
    case What::exchange:
      return numbers_of_all(inputs);
    case What::gather:
      return place == 0 ? numbers_of_all(inputs) : HostTensor{{0}, {}};
    case What::message:
      return place == i.to ? inputs[static_cast<std::size_t>(i.from)] : HostTensor{{0}, {}};
    default:
      return {{0}, {}};
  }
}

}  // namespace shard::testing
