#include "tests/random_programs/ends.hpp"

#include "tests/harness/devices.hpp"

namespace shard::testing {

namespace {

int code_of(Code code) {
  return static_cast<int>(code);
}

int faulty_item(const Plan& plan, const Fault& fault) {
  Index calls = 0;
  for (const Action& action : plan.actions[static_cast<std::size_t>(fault.device)])
    if (action.kind == Action::Kind::start && is_counted(plan.items[static_cast<std::size_t>(action.item)]))
      if (++calls == fault.call) return action.item;
  throw Error(Code::internal, "expected_codes: expected a fault that happens, given another one");
}

const std::vector<int>& members_of(const Plan& plan, const Item& item) {
  return plan.groups[static_cast<std::size_t>(item.group)];
}

bool is_same(const HostTensor& a, const HostTensor& b) {
  return a.shape == b.shape && a.values == b.values;
}

/// The other members make one call more in the group, so one of them meets another call, or waits for ever. A small
/// message that was posted keeps nobody waiting: then a result is wrong, or the message is reported at the end.
std::vector<int> codes_without(const Plan& plan, const Item& left_out) {
  if (members_of(plan, left_out).size() == 1) return {0, code_of(Code::differs)};
  if (left_out.what == What::message)
    return {code_of(Code::mismatch), code_of(Code::deadlock), code_of(Code::differs)};
  return {code_of(Code::mismatch), code_of(Code::deadlock)};
}

/// Whether adding 1 to the first element that the device passes changes any member's result.
bool changes_a_result(const Plan& plan, const Fault& fault) {
  const int index = faulty_item(plan, fault);
  const Item& item = plan.items[static_cast<std::size_t>(index)];
  const std::vector<int>& members = members_of(plan, item);
  if (item.what == What::message) return num_elements(item.shapes[0]) > 0;
  const std::vector<HostTensor> right = inputs_of(plan, index);
  std::vector<HostTensor> wrong = right;
  HostTensor& given = wrong[static_cast<std::size_t>(place_in(members, fault.device))];
  if (given.values.empty()) return false;
  given.values[0] += 1.0F;
  for (int d = 0; d < static_cast<int>(members.size()); ++d)
    if (!is_same(expected_result(plan, index, d, right), expected_result(plan, index, d, wrong))) return true;
  return false;
}

}  // namespace

std::vector<int> expected_codes(const Plan& plan, const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::kill:
    case Fault::Kind::exit:
      return {code_of(Code::lost)};
    case Fault::Kind::raise:
      return {code_of(Code::internal)};
    case Fault::Kind::skip:
      return codes_without(plan, plan.items[static_cast<std::size_t>(faulty_item(plan, fault))]);
    case Fault::Kind::corrupt:
      return {changes_a_result(plan, fault) ? code_of(Code::differs) : 0};
    default:
      return {0};
  }
}

}  // namespace shard::testing
