/// Devices that wait for each other, in collective calls: the job ends.

#include "tests/wrong_programs/calls.hpp"

namespace shard::testing {

namespace {

const char* const of_groups =
    "  they call the collectives of several groups in different orders, or one of a wrong group: call them "
    "in one order on all devices";

std::string at_end(const std::string& who) {
  return fmt::format("  {} in the end of the program (after # calls)", who);
}
/// "devices 0, 2 wait in barrier (call # at FILE:LINE) for device 1"
std::string waits(const std::string& who, const std::string& call, SourceLine where,
                  const std::string& whom) {
  return fmt::format("  {} in {} {} for {}", who, call, call_at(where), whom);
}

void add_at_the_end(Programs& programs, const CollectiveCall& call) {
  const Form& form = call.form;
  auto add = [&](const char* class_, const std::string& waiting, const std::string& who_ended,
                 const Body& body) {
    programs.push_back(
        on_its_own(call.name, class_, 82, {all_stuck, waiting, at_end(who_ended), has_ended}, body));
  };
  add("left out at the end", waits("devices 0, 2 wait", call.in_errors, form.where, "device 1"),
      "device 1 waits", [&] {
        if (me() != odd) form.make();
      });
  add("one too many at the end", waits("device 1 waits", call.in_errors, form.where, "devices 0, 2"),
      "devices 0, 2 wait", [&] {
        form.make();
        if (me() == odd) form.make();
      });
  add("on device 0 alone, at the end", waits("device 0 waits", call.in_errors, form.where, "devices 1, 2"),
      "devices 1, 2 wait", [&] {
        if (group().device_id() == 0) form.make();
      });
}

/// Device 1 makes the call on another group of all devices.
void add_wrong_group(Programs& programs, const CollectiveCall& call) {
  const Form& form = call.form;
  programs.push_back(
      on_its_own(call.name, "on a wrong group", 82,
                 {all_stuck, waits("devices 0, 2 wait", call.in_errors, form.where, "device 1"),
                  waits("device 1 waits", call.in_errors + " in group {0, 1, 2}", form.where, "devices 0, 2"),
                  call.is_agreed ? of_groups : alone(odd)},
                 [&] {
                   const std::unique_ptr<Communicator> another = group().split(0, 0);
                   form.make(me() == odd ? *another : group().inner());
                 }));
}

/// Device 0 leaves out a call on a group of two. Nothing says which of the two is wrong.
Program left_out_by_one_of_two() {
  static const Form of_two("all_reduce in group {0, 1}",
                           CALL(g.all_reduce_async(Tensor({2}), ReduceOp::sum)));
  static const Form of_all("a gather of \"texts\"", CALL(g.gather("texts", "")));
  return on_its_own(
      "all_reduce", "left out by one of a group of two", 82,
      {all_stuck, waits("devices 0, 2 wait", of_all.text, of_all.where, "device 1"),
       waits("device 1 waits", of_two.text, of_two.where, "device 0"),
       "  they wait in calls that do not belong together: see which of them should not be there"},
      [] {
        const std::unique_ptr<Communicator> part = group().split(me() == 2 ? 1 : 0, 0);
        if (me() == odd) of_two.make(*part);
        of_all.make();
      });
}

/// Gathers do not belong to the stream. So members in a gather and members in another call wait for each other.
void add_another_call(Programs& programs, const CollectiveCall& call) {
  for (const OtherSequence& s : other_sequences(call)) {
    const std::string others = s.culprit == 0 ? "devices 1, 2" : "devices 0, 2";
    const std::string one = fmt::format("device {}", s.culprit);
    programs.push_back(on_its_own(call.name, s.class_, 82,
                                  {all_stuck, waits(others + " wait", s.theirs.text, s.theirs.where, one),
                                   waits(one + " waits", s.its.text, s.its.where, others), alone(s.culprit)},
                                  s.body));
  }
}

}  // namespace

Programs deadlocks() {
  Programs programs = {left_out_by_one_of_two()};
  for (const CollectiveCall& call : collective_calls()) {
    add_at_the_end(programs, call);
    add_wrong_group(programs, call);
    if (!call.is_agreed) add_another_call(programs, call);
  }
  return programs;
}

}  // namespace shard::testing
