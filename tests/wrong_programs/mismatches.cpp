/// Devices that do not make the same call: all of them get the error, and continue.

#include "tests/wrong_programs/calls.hpp"

namespace shard::testing {

namespace {

const char* const order = ": a call that depends on the device's id, or another order of calls";
const char* const no_same_call = "the devices do not make the same call*";

/// One device makes a call, the others another one.
std::vector<std::string> one_differs(int culprit, const Form& its, const Form& theirs,
                                     const std::string& cause) {
  return {no_same_call,
          fmt::format("  devices {} call {} {}", culprit == 0 ? "1, 2" : "0, 2", theirs.text,
                      call_at(theirs.where)),
          fmt::format("  device {} calls {} {}", culprit, its.text, call_at(its.where)), "  " + cause};
}
std::vector<std::string> one_calls_another(int culprit, const Form& its, const Form& theirs) {
  return one_differs(culprit, its, theirs,
                     fmt::format("look at what device {} alone does{}", culprit, order));
}

/// One device makes another sequence of calls than the others.
void add_other_sequences(Programs& programs, const CollectiveCall& call) {
  const Form& mine = call.form;
  const Form& other = another_call(call);
  auto add = [&](const char* class_, const std::vector<std::string>& says, const Body& body) {
    programs.push_back({call.name, class_, 81, says, body});
  };
  add("another call on one device", one_calls_another(odd, other, mine),
      [&] { (me() == odd ? other : mine).make(); });
  add("left out in the middle", one_calls_another(odd, other, mine), [&] {
    if (me() != odd) mine.make();
    other.make();
  });
  add("one too many in the middle", one_calls_another(odd, mine, other), [&] {
    mine.make();
    if (me() == odd) mine.make();
    other.make();
  });
  add("on device 0 alone, in the middle", one_calls_another(0, mine, other), [&] {
    if (group().device_id() == 0) mine.make();
    other.make();
  });
  add("two calls in another order", one_calls_another(odd, other, mine), [&] {
    for (const Form* next : me() == odd ? std::vector{&other, &mine} : std::vector{&mine, &other})
      next->make();
  });
}

void add_other_forms(Programs& programs, const CollectiveCall& call) {
  for (const OtherForm& other : call.others) {
    const bool has_another_name = other.class_ == "another subject";
    programs.push_back(
        {call.name, other.class_ + " on one device", 81,
         has_another_name
             ? one_calls_another(odd, other.form, call.form)
             : one_differs(
                   odd, other.form, call.form,
                   fmt::format("the calls' order, shapes, axes, operations or roots must fit: see what "
                               "device {} passes",
                               odd)),
         [&] { (me() == odd ? other.form : call.form).make(); }});
  }
}

const unsigned line_of_targets = SourceLine::current().line() + 2;
Future<> send_to(int target, Tensor& dst) {
  return group().send_async(Tensor({3}), dst, target);
}

void add_send_async(Programs& programs) {
  const std::string place = fmt::format("tests/wrong_programs/mismatches.cpp:{}", line_of_targets);
  programs.push_back({"send_async",
                      "two devices with one target",
                      81,
                      {"device #: send_async: expected distinct targets, given device 2 as the target of "
                       "both 0 and 1, at " +
                       place},
                      [] {
                        Tensor dst({3});
                        send_to(me() == 2 ? 0 : 2, dst).wait();
                      }});
  programs.push_back(
      {"send_async",
       "another shape on one device",
       81,
       {"device 1: send_async: expected (4,) as my dst, given (3,) from device 0, at " + place},
       [] {
         Tensor dst({me() == odd ? 4 : 3});
         send_to(right(), dst).wait();
       },
       Runs::alone});
}

}  // namespace

Programs mismatches() {
  Programs programs;
  for (const CollectiveCall& call : collective_calls()) {
    if (call.is_agreed) add_other_sequences(programs, call);
    add_other_forms(programs, call);
  }
  add_send_async(programs);
  return programs;
}

}  // namespace shard::testing
