// Deadlocks: of all devices, and of some while others go on.

#include "tests/failures/misbehave.hpp"

namespace {

constexpr int line_of_send = __LINE__ + 2;
void send_to_the_right() {
  group().send(right(), Tensor({3}));
  group().receive(left());
}
/// Messages back and forth between devices 2 and 3, without an end.
void talk_for_ever() {
  for (int turn = 0;; ++turn)
    if ((turn + me()) % 2 == 0)
      group().send(5 - me(), Tensor({2}));
    else
      group().receive(5 - me());
}

/// Polls two messages, five times a second, until one of them is done.
void poll_two_messages_of_1() {
  Future<Tensor> one = group().post_receive(1, {2}), other = group().post_receive(1, {2});
  while (!one.ready() && !other.ready()) std::this_thread::sleep_for(200ms);
}

void drop_a_message() {
  (void)group().post_send(1, Tensor({100'000}));
}
void drop_a_receive() {
  (void)group().post_receive(1, {3});
}
void compute_long() {
  std::this_thread::sleep_for(60s);
}

/// Each device calls a barrier with the next device first, and then one with the device before it: a circle.
void meet_in_groups_of_two() {
  std::unique_ptr<Communicator> with_next, with_previous;
  for (int first = 0; first < devices(); ++first) {
    const bool is_first = me() == first, is_second = me() == (first + 1) % devices();
    std::unique_ptr<Communicator> pair =
        group().split(is_first || is_second ? std::optional<Index>(0) : std::nullopt, is_first ? 0 : 1);
    if (is_first) with_next = std::move(pair);
    if (is_second) with_previous = std::move(pair);
  }
  with_next->barrier();
  with_previous->barrier();
}

}  // namespace

const std::vector<Case> everybody_waits = {
    ends_in(82, "sends_to_the_right", 3,
            {"error: deadlock: devices 0", " can never go on\n",
             fmt::format("\n  device 0 waits in send ({}) for device 1\n",
                         call_1_at("deadlocks.cpp", line_of_send)),
             "\n  each sends first: let one of them receive first, or post the sends"},
            send_to_the_right, Where::everywhere),
    ends_in(82, "1_ends_early", 3,
            {fmt::format("\n  devices 0, 2 wait in all_reduce ({}) for device 1\n",
                         call_1_at("misbehave.hpp", line_of_all_reduce)),
             "\n  device 1 waits in the end of the program (after 0 calls)\n", "(uneven batches)?"},
            only(1, nothing, all_reduce), Where::everywhere),
    ends_in(82, "1_ends_while_others_poll", 3,
            {"devices 0, 2 can never go on", "  devices 0, 2 poll in all_reduce (", ") for device 1\n",
             "  device 1 waits in the end of the program"},
            only(1, nothing, poll_all_reduce)),
    ends_in(82, "1_ends_while_others_poll_two_calls_slowly", 3,
            {"devices 0, 2 can never go on", "  devices 0, 2 poll in post_receive (",
             ", and 1 more) for device 1\n"},
            only(1, nothing, poll_two_messages_of_1)),
    ends_in(82, "groups_in_a_circle", 3,
            {"  device 0 waits in barrier in group {0, 1} (call 1 at ",
             ") for device 1\n  device 1 waits in barrier in group {1, 2} (call 1 at ",
             ") for device 2\n  device 2 waits in barrier in group {2, 0} (call 1 at ",
             "collectives of several groups in different orders"},
            meet_in_groups_of_two, Where::everywhere),
    ends_in(82, "0_drops_a_message_that_nobody_receives", 2,
            {"  device 0 waits in post_send (call 1 at ",
             ") for device 1\n  device 1 waits in the end of the program"},
            only(0, drop_a_message, nothing), Where::everywhere),
    ends_in(82, "0_drops_a_receive_of_what_nobody_sends", 3,
            {"  device 0 waits in post_receive (call 1 at ", ") for device 1\n"},
            only(0, drop_a_receive, nothing)),
};

/// Some devices can never go on, and others can. The error must not name the others.
const std::vector<Case> some_wait_for_ever = {
    ends_in(82, "1_and_2_face_each_other_while_0_computes", 3,
            {"error: deadlock: devices 1, 2 can never go on\n", "  device 1 waits in receive (",
             "each receives first"},
            only(0, compute_long, [] { group().receive(3 - me()); }), Where::emulator),
    ends_in(
        82, "0_and_1_face_each_other_while_2_and_3_talk", 4,
        {"error: deadlock: devices 0, 1 can never go on\n", "  device 0 waits in send (", "each sends first"},
        [] { me() < 2 ? group().send(1 - me(), Tensor({2})) : talk_for_ever(); }),
    ends_in(82, "1_waits_for_2_that_faces_3_while_0_computes", 4,
            {"error: deadlock: devices 1 to 3 can never go on\n", "  devices 1, 3 wait in receive (",
             ") for device 2\n"},
            only(0, compute_long, [] { group().receive(me() == 3 ? 2 : me() + 1); }), Where::emulator),
};
