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

void add_other_forms(Programs& programs, const CollectiveCall& call) {
  const std::string must_fit = fmt::format(
      "the calls' order, shapes, axes, operations or roots must fit: see what device {} passes", odd);
  for (const OtherForm& other : call.others)
    programs.push_back(together(call.name, other.class_ + " on one device", 81,
                                other.class_ == "another subject"
                                    ? one_calls_another(odd, other.form, call.form)
                                    : one_differs(odd, other.form, call.form, must_fit),
                                [&] { (me() == odd ? other.form : call.form).make(); }));
}

const unsigned line_of_targets = SourceLine::current().line() + 2;
Future<> send_to(int target, Tensor& dst) {
  return group().send_async(Tensor({3}), dst, target);
}

void add_send_async(Programs& programs) {
  const std::string place = fmt::format("tests/wrong_programs/mismatches.cpp:{}", line_of_targets);
  programs.push_back(
      together("send_async", "two devices with one target", 81,
               {"device #: send_async: expected distinct targets, given device 2 as the target of both 0 "
                "and 1, at " +
                place},
               [] {
                 Tensor dst({3});
                 send_to(me() == 2 ? 0 : 2, dst).wait();
               }));
  programs.push_back(on_its_own(
      "send_async", "another shape on one device", 81,
      {"device 1: send_async: expected (4,) as my dst, given (3,) from device 0, at " + place}, [] {
        Tensor dst({me() == odd ? 4 : 3});
        send_to(right(), dst).wait();
      }));
}

}  // namespace

Programs mismatches() {
  Programs programs;
  for (const CollectiveCall& call : collective_calls()) {
    if (call.is_agreed)
      for (const OtherSequence& s : other_sequences(call))
        programs.push_back(
            together(call.name, s.class_, 81, one_calls_another(s.culprit, s.its, s.theirs), s.body));
    add_other_forms(programs, call);
  }
  add_send_async(programs);
  return programs;
}

}  // namespace shard::testing
