/// Device 1 throws, or leaves the program, before a call that the others make; and futures that are dropped.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "engine/device/runtime/watchdog/flight_record.hpp"
#include "tests/wrong_programs/calls.hpp"

namespace shard::testing {

namespace {

const char* const says_lost = "device 1 was lost: it left the program with exit code 0 after no call";
const char* const says_thrown = "device 1: no such file";

/// Returns when these devices wait, as their records say; or after 10 s, which makes the test fail.
void until_they_wait(const std::vector<int>& waiting) {
  using runtime::FlightRecord;
  auto waits = [](int device) {
    FlightRecord::Content content{};
    std::ifstream file(std::getenv("SHARDBOOK_RECORDS") + fmt::format("/device_{}", device),
                       std::ios::binary);
    file.read(reinterpret_cast<char*>(&content), sizeof content);
    return file && content.state == static_cast<std::int64_t>(FlightRecord::State::waits);
  };
  for (int i = 0; i < 10'000 && !std::ranges::all_of(waiting, waits); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void add_lost(Programs& programs, const std::string& call, const std::string& in_errors, SourceLine where,
              const std::function<void()>& make) {
  const bool is_message = call == "receive" || call == "send";
  const std::string others =
      fmt::format("  {} in call # ({}) at {}", is_message ? "device 0 was" : "devices 0, 2 were", in_errors,
                  to_string(where));
  auto meanwhile = [make, is_message] {
    if (me() == 0 || !is_message) make();
  };
  programs.push_back(on_its_own(call, "a device throws before it", 65, {says_thrown}, [meanwhile] {
    if (me() == odd) throw Error(Code::file, "device 1: no such file");
    meanwhile();
  }));
  std::vector<std::string> lines = {says_lost, others};
  if (is_message) lines.push_back("  device 2 was *");
  programs.push_back(on_its_own(call, "a device leaves before it", 83, lines, [meanwhile, is_message] {
    if (me() == odd) {
      until_they_wait(is_message ? std::vector<int>{0} : std::vector<int>{0, 2});
      std::exit(0);
    }
    meanwhile();
  }));
}

const Form& send_to_1() {
  static const Form form("send", CALL(g.send(1, Tensor({3}))));
  return form;
}
const Form& receive_from_1() {
  static const Form form("receive", CALL(g.receive(1)));
  return form;
}

}  // namespace

Programs lost_devices() {
  Programs programs;
  for (const CollectiveCall& call : collective_calls())
    add_lost(programs, call.name, call.in_errors, call.form.where, [&] { call.form.make(); });
  for (const Form* message : {&send_to_1(), &receive_from_1()})
    add_lost(programs, message->text, message->text, message->where, [message] { message->make(); });
  return programs;
}

Programs dropped_futures() {
  Programs programs;
  auto add = [&](const std::string& call, const std::string& in_errors, SourceLine where, const Body& body) {
    programs.push_back(
        on_its_own(call, "its future dropped", 0,
                   {fmt::format("device 1: the future of {} {} was dropped without waiting for it", in_errors,
                                call_at(where))},
                   body));
  };
  for (const CollectiveCall& call : collective_calls())
    if (call.is_async)
      add(call.name, call.in_errors, call.form.where, [&] {
        const InProgress started = call.form.start(group());
        if (me() != odd) started.get();
      });
  static const Form post_to_2("post_send", CALL(g.post_send(2, Tensor({3}))));
  static const Form post_from_0("post_receive", CALL(g.post_receive(0, {3})));
  add("post_send", "post_send", post_to_2.where, [] {
    if (me() == odd) (void)post_to_2.start(group());
    if (me() == 2) group().receive(odd);
  });
  add("post_receive", "post_receive", post_from_0.where, [] {
    if (me() == odd) (void)post_from_0.start(group());
    if (me() == 0) group().send(odd, Tensor({3}));
  });
  return programs;
}

}  // namespace shard::testing
