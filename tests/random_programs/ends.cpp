/// A program that leaves a call out may end in 81, 82, 86 or, without an effect, in 0. A simulation finds the
/// code: every device continues as far as it can. The result does not depend on the order of its steps, since
/// the conditions that calls wait for stay true. So there is one answer.
///
/// A deadlock is proved only after a while, and a mismatch is found at once. So the code is 81 if any device
/// gets to a mismatch, even if others wait for ever.

#include "tests/random_programs/ends.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <tuple>

#include "tests/harness/devices.hpp"

namespace shard::testing {

namespace {

constexpr Index eager_elements = 1000;  // a smaller posted send is done at once

int code_of(Code code) {
  return static_cast<int>(code);
}

int faulty_item(const Plan& plan, const Fault& fault) {
  Index calls = 0;
  for (const Action& action : plan.actions[static_cast<std::size_t>(fault.device)])
    if (action.kind == Action::Kind::start && is_counted(plan.items[static_cast<std::size_t>(action.item)]))
      if (++calls == fault.call) return action.item;
  throw Error(Code::internal, "expected_code: expected a fault that happens, given another one");
}

bool is_same(const HostTensor& a, const HostTensor& b) {
  return a.shape == b.shape && a.values == b.values;
}

/// One device's part of an item, in progress.
struct Part {
  const Item* item;
  int index;  // of the item in the plan
  int place;
  bool is_posted = false;
  Index number = -1;  // the position among its group's calls, or its pair's messages; -1 until it begins
  bool is_done = false, has_error = false;
};

class Simulation {
 public:
  Simulation(const Plan& plan, const Fault& left_out)
      : plan_(plan), skipped_device_(left_out.device), skipped_item_(faulty_item(plan, left_out)) {
    devices_.resize(static_cast<std::size_t>(plan.devices));
  }

  int code() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int d = 0; d < plan_.devices; ++d)
        while (step(d)) goes_on = true;
      if (has_mismatch_) return code_of(Code::mismatch);
    }
    for (int d = 0; d < plan_.devices; ++d)
      if (!has_ended(d)) return code_of(Code::deadlock);
    if (is_wrong_) return code_of(Code::differs);
    return has_left_over() ? code_of(Code::mismatch) : 0;
  }

 private:
  struct Device {
    std::size_t next = 0;  // the index of the next action
    std::deque<Part*> stream;
    std::list<Part*> posted;
    std::map<int, Part*> pending;  // by item
    Part* awaited = nullptr;
  };

  Device& device(int d) { return devices_[static_cast<std::size_t>(d)]; }
  const std::vector<int>& members(const Item& item) const {
    return plan_.groups[static_cast<std::size_t>(item.group)];
  }
  bool has_ended(int d) {
    const Device& me = device(d);
    return me.next == plan_.actions[static_cast<std::size_t>(d)].size() && !me.awaited && me.stream.empty() &&
           me.posted.empty();
  }

  /// Makes one step of a device. False if it cannot continue.
  bool step(int d) {
    Device& me = device(d);
    if (has_mismatch_) return false;
    bool has_changed = false;
    for (auto part = me.posted.begin(); part != me.posted.end();)
      if (is_done(**part))
        part = me.posted.erase(part), has_changed = true;
      else
        ++part;
    while (!me.stream.empty() && is_done(*me.stream.front())) me.stream.pop_front(), has_changed = true;
    if (has_changed) return true;
    if (me.awaited) {
      if (!is_done(*me.awaited)) return false;
      has_mismatch_ |= me.awaited->has_error;
      me.awaited = nullptr;
      return true;
    }
    const auto& actions = plan_.actions[static_cast<std::size_t>(d)];
    return me.next < actions.size() && act(d, actions[me.next]);
  }

  /// Begins an action. False if it has to wait first.
  bool act(int d, const Action& action) {
    Device& me = device(d);
    if (action.kind == Action::Kind::synchronize && (!me.stream.empty() || !me.posted.empty())) return false;
    ++me.next;
    if (action.kind == Action::Kind::start) start(d, action.item);
    if (action.kind == Action::Kind::wait) me.awaited = me.pending.at(action.item);
    return true;
  }

  void start(int d, int index) {
    Device& me = device(d);
    const Item& item = plan_.items[static_cast<std::size_t>(index)];
    Part* part = &parts_.emplace_back(Part{&item, index, place_in(members(item), d)});
    const bool is_sender = part->place == item.from;
    const bool blocks = is_blocking(item, is_sender);
    part->is_posted = item.what == What::message && !blocks;
    if (d == skipped_device_ && index == skipped_item_)
      leave_out(*part);
    else if (item.what == What::gather)
      begin(*part);  // outside the stream
    else if (part->is_posted)
      begin(*part), me.posted.push_back(part);
    else
      me.stream.push_back(part);
    (blocks ? me.awaited : me.pending[index]) = part;
  }

  /// The call returns its argument.
  void leave_out(Part& part) {
    part.is_done = true;
    const Item& item = *part.item;
    const HostTensor expected = expected_result(plan_, part.index, part.place, inputs_of(plan_, part.index));
    HostTensor given = input_of(plan_, part.index, part.place);
    if (item.what == What::message && part.place == item.from) return;
    if (item.what == What::message && !item.is_posted_receive) given = {{0}, {}};
    if (item.what == What::send_async || (item.what == What::message && item.is_posted_receive))
      given.values.assign(given.values.size(), 0.0F);
    if (item.what != What::barrier) is_wrong_ |= !is_same(given, expected);
  }

  /// The list with this part: this device's calls of a group, or one side of its messages.
  std::vector<Part*>& list_of(const Item& item, int place) {
    if (item.what == What::message) return messages_[{item.group, item.from, item.to, place == item.from}];
    return (item.what == What::gather ? gathers_ : calls_)[{item.group, place}];
  }
  void begin(Part& part) {
    std::vector<Part*>& list = list_of(*part.item, part.place);
    part.number = static_cast<Index>(list.size());
    list.push_back(&part);
  }
  static Part* at(const std::vector<Part*>& list, Index number) {
    return number < static_cast<Index>(list.size()) ? list[static_cast<std::size_t>(number)] : nullptr;
  }

  bool is_done(Part& part) {
    if (part.is_done) return true;
    if (part.number < 0) {  // it is not yet the first of its stream
      const auto& stream = device(members(*part.item)[static_cast<std::size_t>(part.place)]).stream;
      if (stream.front() != &part) return false;
      begin(part);
    }
    return part.is_done = part.item->what == What::message ? is_message_done(part) : is_collective_done(part);
  }

  // ---- Messages: the k-th send belongs to the k-th receive --------------------------------------------

  /// Whether there is a message without a receive.
  bool has_left_over() {
    return std::ranges::any_of(messages_, [this](const auto& list) {
      const auto& [group, from, to, is_sender] = list.first;
      const auto received = messages_.find({group, from, to, false});
      return is_sender && list.second.size() > (received == messages_.end() ? 0 : received->second.size());
    });
  }

  bool is_message_done(Part& part) {
    const Item& item = *part.item;
    const bool is_sender = part.place == item.from;
    Part* other = at(messages_[{item.group, item.from, item.to, !is_sender}], part.number);
    const Shape& sent = is_sender ? item.shapes[0] : other ? other->item->shapes[0] : item.shapes[0];
    const bool is_small = num_elements(sent) < eager_elements;
    if (is_sender && item.is_posted_send && is_small) return true;
    if (other == nullptr) return false;
    if (is_sender)
      return is_small || !other->item->is_posted_receive || other->item->shapes[0] == item.shapes[0];
    if (item.is_posted_receive && sent != item.shapes[0]) {
      part.has_error = true;
      return true;
    }
    is_wrong_ |= !is_same(input_of(plan_, other->index, item.from), input_of(plan_, part.index, item.from));
    return true;
  }

  // ---- Collectives: the k-th calls of all members belong together ---------------------------------------

  bool is_collective_done(Part& part) {
    std::vector<Part*> all;
    const int n = static_cast<int>(members(*part.item).size());
    auto& lists = part.item->what == What::gather ? gathers_ : calls_;
    for (int d = 0; d < n; ++d) {
      all.push_back(at(lists[{part.item->group, d}], part.number));
      if (all.back() == nullptr) return false;
    }
    for (const Part* other : all) part.has_error |= what_is_agreed(*other) != what_is_agreed(part);
    if (part.item->what == What::send_async && !part.has_error) part.has_error = is_refused(part, all);
    return true;
  }

  /// What all members must agree on: the call, and the shape without the axis along which slices may differ.
  static std::tuple<What, ReduceOp, int, int, int, Shape> what_is_agreed(const Part& part) {
    const Item& item = *part.item;
    std::tuple<What, ReduceOp, int, int, int, Shape> agreed{item.what, ReduceOp::sum, 0, 0, 0, {}};
    auto& [what, op, axis, concat_axis, root, shape] = agreed;
    if (what == What::all_gather_of_copy) what = What::all_gather;
    if (what == What::all_to_all_of_counts) what = What::all_to_all;
    if (what == What::broadcast) root = item.root;
    const bool adds = what == What::all_reduce || what == What::reduce_scatter;
    const bool has_slices = what == What::all_gather || what == What::all_to_all;
    if (adds) op = item.op;
    if (what == What::reduce_scatter || has_slices) axis = item.axis;
    if (what == What::all_to_all) concat_axis = item.concat_axis;
    if (adds || has_slices) shape = item.shapes[static_cast<std::size_t>(part.place)];
    if (has_slices) shape[static_cast<std::size_t>(what == What::all_gather ? axis : concat_axis)] = 0;
    return agreed;
  }

  /// Whether send_asyncs do not fit: two of them have one target, or a source has another shape than dst.
  static bool is_refused(const Part& part, const std::vector<Part*>& all) {
    std::vector<Index> targets;
    for (const Part* other : all) {
      const Index target = other->item->targets[static_cast<std::size_t>(other->place)];
      if (target >= 0 && std::ranges::find(targets, target) != targets.end()) return true;
      targets.push_back(target);
      if (target == part.place && other->item->shapes[0] != part.item->shapes[0]) return true;
    }
    return false;
  }

  const Plan& plan_;
  int skipped_device_, skipped_item_;
  std::list<Part> parts_;
  std::vector<Device> devices_;
  std::map<std::tuple<int, int>, std::vector<Part*>> calls_, gathers_;      // by group and place
  std::map<std::tuple<int, int, int, bool>, std::vector<Part*>> messages_;  // by group, from, to, is_sender
  bool has_mismatch_ = false, is_wrong_ = false;
};

/// Whether adding 1 to the first element that the device passes changes any member's result.
bool changes_a_result(const Plan& plan, const Fault& fault) {
  const int index = faulty_item(plan, fault);
  const Item& item = plan.items[static_cast<std::size_t>(index)];
  const std::vector<int>& members = plan.groups[static_cast<std::size_t>(item.group)];
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

int expected_code(const Plan& plan, const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::kill:
    case Fault::Kind::exit:
      return code_of(Code::lost);
    case Fault::Kind::raise:
      return code_of(Code::internal);
    case Fault::Kind::skip:
      return Simulation(plan, fault).code();
    case Fault::Kind::corrupt:
      return changes_a_result(plan, fault) ? code_of(Code::differs) : 0;
    default:
      return 0;
  }
}

}  // namespace shard::testing
