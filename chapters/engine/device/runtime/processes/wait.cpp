/// Waits of devices that are processes. In a long wait, a device receives other devices' errors and takes its part in the
/// search for deadlocks.

#include "engine/device/runtime/wait.hpp"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "engine/device/gathered.hpp"
#include "engine/device/runtime/job.hpp"
#include "engine/device/runtime/processes/control_messages.hpp"
#include "engine/device/runtime/processes/deadlock_search.hpp"
#include "engine/device/runtime/processes/shared_memory.hpp"
#include "engine/device/runtime/watchdog/flight_record.hpp"
#include "engine/device/runtime/witness.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr auto yield_time = 2ms;  // a device with a core of its own that waits longer sleeps
constexpr auto shared_yield_time =
    100us;  // one that shares its core: to sleep at once takes 2 to 3 times as long
constexpr auto shortest_sleep = 15us;
constexpr auto longest_sleep = 200us;
constexpr int sleeps_per_wait = 64;  // a longer sleep makes a wait longer by at most a 64th
constexpr auto listen_interval = 1ms;

using Describe = std::function<Blocked()>;

ControlMessages& messages() {
  return ControlMessages::instance();
}

/// This device's part in the search; none when all devices are at the end.
struct Search {
  std::optional<DeadlockSearch> mine{std::in_place, messages().id(), messages().size()};
};

void receive_failures() {
  int source = 0;
  std::string bytes;
  if (messages().id() != 0 || !messages().try_receive(ControlMessages::failure, source, bytes)) return;
  const auto [code, line] = from_bytes<std::pair<Code, std::string>>(bytes);
  Job::fail(code, line);
}

/// Ignores a verdict on an earlier state: this device found that deadlock itself, and its program continued.
void receive_verdict(const Describe& describe) {
  int source = 0;
  std::string bytes;
  if (!messages().try_receive(ControlMessages::verdict, source, bytes)) return;
  const auto [state, line] = from_bytes<std::pair<std::string, std::string>>(bytes);
  if (state == state_of_device(describe()).packed()) throw_deadlock(line);
}

void search_for_deadlock(DeadlockSearch& search, const Describe& describe, steady_clock::time_point since) {
  int source = 0;
  std::string bytes;
  while (messages().try_receive(ControlMessages::question, source, bytes)) search.on_question(source);
  while (messages().try_receive(ControlMessages::answer, source, bytes)) search.on_answer(source, bytes);
  auto sending = [](ControlMessages::Tag tag) {
    return [tag](int to, const std::string& text) { messages().send(to, tag, text); };
  };
  const auto found = search.poll([&] { return state_of_device(describe()); }, since,
                                 {sending(ControlMessages::question), sending(ControlMessages::answer)});
  if (!found) return;
  const std::string line = explain_deadlock(found->states, found->stuck);
  const int me = messages().id();
  for (int d : found->stuck) {
    const std::string state = found->states[static_cast<std::size_t>(d)]->packed();
    if (d != me) messages().send(d, ControlMessages::verdict, to_bytes(std::pair(state, line)));
  }
  if (std::ranges::find(found->stuck, me) != found->stuck.end()) throw_deadlock(line);
}

}  // namespace

const int Wait::spins_before_a_pause = 64;

void Wait::pause(const std::function<Blocked()>&) {
  spins_ = 0;
  if (since_ == steady_clock::time_point{}) since_ = listened_ = steady_clock::now();
  const steady_clock::duration waited = steady_clock::now() - since_;
  const int sharing = SharedMemory::instance().devices_per_core();
  if (waited < (sharing == 1 ? yield_time : shared_yield_time)) return static_cast<void>(sched_yield());
  const steady_clock::duration shortest = shortest_sleep * sharing;
  std::this_thread::sleep_for(
      std::max(shortest, std::min<steady_clock::duration>(waited / sleeps_per_wait, longest_sleep)));
}

void Wait::listen(const Describe& describe) {
  const auto now = steady_clock::now();
  if (since_ == steady_clock::time_point{}) since_ = listened_ = now;
  if (now - listened_ < listen_interval) return;
  listened_ = now;
  if (!std::exchange(is_noted_, true))
    FlightRecord::instance().note_state(describe().is_polling ? FlightRecord::State::polls
                                                              : FlightRecord::State::waits);
  receive_failures();
  Search& search = device().state<Search>();
  if (!search.mine) return;
  receive_verdict(describe);
  search_for_deadlock(*search.mine, describe, since_);
}

Wait::~Wait() {
  const bool has_failed =
      std::uncaught_exceptions() > 0;  // then the record still says that it waits or polls
  if (is_noted_ && !has_failed) FlightRecord::instance().note_state(FlightRecord::State::runs);
}

void Wait::let_others_run() {}

void Wait::end_search() {
  device().state<Search>().mine.reset();
}

}  // namespace shard::runtime
