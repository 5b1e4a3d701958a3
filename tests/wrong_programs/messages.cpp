/// Sends and receives that do not belong together.

#include "tests/wrong_programs/program.hpp"

namespace shard::testing {

namespace {

using Lines = std::vector<std::string>;

Tensor message(Index elements = 3) {
  return Tensor({elements});
}

// Each call stands on a line of its own, as errors name it.
// clang-format off
const unsigned first = SourceLine::current().line();
void send(int to) { group().send(to, message()); }
void receive(int from) { group().receive(from); }
void await_receive(int from) { group().post_receive(from, {3}).get(); }
void await_send(int to) { group().post_send(to, Tensor({100'000})).wait(); }
void send_much(int to) { group().send(to, message(4000)); }
void barrier() { group().barrier(); }
void expect(int from, const Shape& shape) { group().post_receive(from, shape).get(); }
void post(int to, Communicator& g) { g.post_send(to, message()).wait(); }
// clang-format on

/// "receive (call # at FILE:LINE)" for the function that stands `line` lines below `first`.
std::string at(const char* call, unsigned line) {
  return fmt::format("{} (call # at tests/wrong_programs/messages.cpp:{})", call, first + line);
}
const std::string in_send = at("send", 1), in_receive = at("receive", 2),
                  in_awaited_receive = at("post_receive", 3), in_awaited_send = at("post_send", 4),
                  in_barrier = at("barrier", 6);

std::string waits(int device, const std::string& call, const std::string& whom) {
  return fmt::format("  device {} waits in {} for {}", device, call, whom);
}
/// A device waits for `whom`. The two others have ended, after equal numbers of calls.
Lines waits_for_ended(int device, const std::string& call, int whom) {
  const int other = 3 - device - whom;
  return {all_stuck, waits(device, call, fmt::format("device {}", whom)),
          fmt::format("  devices {}, {} wait in the end of the program (after # calls)",
                      std::min(whom, other), std::max(whom, other)),
          has_ended};
}
/// Device 1 waits for device 2. The two others have ended, after different numbers of calls.
Lines waits_once_more(const std::string& call) {
  return {all_stuck, waits(1, call, "device 2"), "  device 0 waits in the end of the program (after 0 calls)",
          "  device 2 waits in the end of the program (after 1 calls)", has_ended};
}
Lines in_a_ring(const std::string& call, int step, const char* cause) {
  Lines lines = {all_stuck};
  for (int d = 0; d < number_of_devices; ++d)
    lines.push_back(waits(d, call, fmt::format("device {}", (d + step) % number_of_devices)));
  lines.push_back(cause);
  return lines;
}

void on(int device, const std::function<void()>& action) {
  if (me() == device) action();
}

Programs left_out() {
  return {
      on_its_own("send", "left out", 82, waits_for_ended(1, in_receive, 0),
                 [] { on(1, [] { receive(0); }); }),
      on_its_own("receive", "left out", 82, waits_for_ended(0, in_send, 1), [] { on(0, [] { send(1); }); }),
      on_its_own("post_send", "left out", 82, waits_for_ended(1, in_awaited_receive, 0),
                 [] { on(1, [] { await_receive(0); }); }),
      on_its_own("post_receive", "left out", 82, waits_for_ended(0, in_awaited_send, 1),
                 [] { on(0, [] { await_send(1); }); }),
      on_its_own("send", "one too many", 82, waits_once_more(in_send),
                 [] {
                   on(1, [] { send(2), send(2); });
                   on(2, [] { receive(1); });
                 }),
      on_its_own("receive", "one too many", 82, waits_once_more(in_receive),
                 [] {
                   on(1, [] { receive(2), receive(2); });
                   on(2, [] { send(1); });
                 }),
      on_its_own("post_receive", "one too many", 82, waits_once_more(in_awaited_receive), [] {
        on(1, [] { await_receive(2), await_receive(2); });
        on(2, [] { send(1); });
      })};
}

Programs in_rings() {
  return {on_its_own(
              "send", "sends first on all", 82,
              in_a_ring(in_send, 1, "  each sends first: let one of them receive first, or post the sends"),
              [] { send(right()), receive(left()); }),
          on_its_own("receive", "receives first on all", 82,
                     in_a_ring(in_receive, 2, "  each receives first: let one of them send first"),
                     [] { receive(left()), send(right()); }),
          on_its_own("post_receive", "receives first on all", 82,
                     in_a_ring(in_awaited_receive, 2, "  each receives first: let one of them send first"),
                     [] { await_receive(left()), send(right()); })};
}

Programs wrong_partners() {
  const std::string ended = "  device 2 waits in the end of the program (after # calls)";
  return {
      on_its_own(
          "receive", "from a wrong device", 82,
          {all_stuck, waits(0, in_send, "device 1"), waits(1, in_receive, "device 2"), ended, has_ended},
          [] {
            on(0, [] { send(1); });
            on(1, [] { receive(2); });
          }),
      on_its_own(
          "send", "to a wrong device", 82,
          {all_stuck, waits(0, in_receive, "device 1"), waits(1, in_send, "device 2"), ended, has_ended}, [] {
            on(0, [] { receive(1); });
            on(1, [] { send(2); });
          })};
}

Programs beside_collectives() {
  auto lines = [](const std::string& call) {
    return Lines{all_stuck, "  devices 0, 2 wait in " + in_barrier + " for device 1",
                 waits(1, call, "device 0"), alone(odd)};
  };
  return {on_its_own("send", "in the place of a collective", 82, lines(in_send),
                     [] { me() == odd ? send(0) : barrier(); }),
          on_its_own("receive", "in the place of a collective", 82, lines(in_receive),
                     [] { me() == odd ? receive(0) : barrier(); }),
          on_its_own("receive", "before a collective, its send after it", 82, lines(in_receive), [] {
            on(1, [] { receive(0); });
            barrier();
            on(0, [] { send(1); });
          })};
}

/// Messages so small that their sender need not wait for a receiver.
Programs left_over() {
  auto text = [](int sender, int sent, int received, const char* of_group) {
    const std::string call = at(fmt::format("post_send{}", of_group).c_str(), 8);
    return Lines{"messages were sent that nobody received:",
                 fmt::format("  device {} sent {} to device 2, which received {}: its last is {}", sender,
                             sent, received, call)};
  };
  return {
      on_its_own("post_send", "of which nobody receives one", 81, text(1, 1, 0, ""),
                 [] { on(1, [] { post(2, group()); }); }),
      on_its_own("post_send", "of which nobody receives one", 81, text(1, 3, 2, ""),
                 [] {
                   on(1, [] { post(2, group()), post(2, group()), post(2, group()); });
                   on(2, [] { receive(1), receive(1); });
                 }),
      on_its_own("post_send", "of which nobody receives one", 81, text(1, 1, 0, " in group {2, 1, 0}"), [] {
        const std::unique_ptr<Communicator> backwards = group().split(0, -me());
        on(1, [&] { post(0, *backwards); });
      })};
}

Programs wrong_lengths() {
  Programs programs;
  const std::string place = fmt::format(", at tests/wrong_programs/messages.cpp:{}", first + 7);
  auto add = [&](const char* class_, const Shape& expected, bool is_long) {
    programs.push_back(on_its_own("post_receive", class_, 81,
                                  {fmt::format("device 1: post_receive: expected {}, given {} from device 0",
                                               to_string(expected), is_long ? "(4000,)" : "(3,)") +
                                   place},
                                  [expected, is_long] {
                                    on(0, [&] { is_long ? send_much(1) : send(1); });
                                    on(1, [&] { expect(0, expected); });
                                  }));
  };
  add("the message is shorter", {40}, false);
  add("the message is longer", {3}, true);
  add("the message has another rank", {3, 1}, false);
  add("an empty message is expected", {0}, false);
  return programs;
}

}  // namespace

Programs messages() {
  Programs programs;
  for (const Programs& some :
       {left_out(), in_rings(), wrong_partners(), beside_collectives(), left_over(), wrong_lengths()})
    programs.insert(programs.end(), some.begin(), some.end());
  return programs;
}

}  // namespace shard::testing
