#include "engine/device/runtime/control_plane.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <list>
#include <thread>
#include <utility>

#include "engine/device/error.hpp"
#include "engine/device/runtime/flight_record.hpp"
#include "engine/device/runtime/header.hpp"
#include "engine/device/runtime/message_counts.hpp"

namespace shard::runtime {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr auto before_sleep = 100us;  // a device that waits longer lets the core sleep
constexpr auto nap = 15us;
constexpr auto longest_nap = 200us;
constexpr int naps_of_a_wait = 64;  // a longer nap adds at most this part to the wait
constexpr auto between_looks = 1ms;
constexpr std::size_t groups_remembered = 256;
constexpr auto grace = 3000ms;  // the time in which device 0 must print another device's last line

enum Tag { failure = 1, question, answer, verdict };

/// In one write: between pieces of a line, the launcher's words or another device's could come. Control
/// characters of a text that somebody has passed do not reach the terminal.
void print_line(const std::string& line) {
  constexpr std::size_t longest = 1 << 16;
  std::string text = "error: ";
  for (const char c : line.substr(0, longest)) {
    const bool is_control = (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
    text += is_control ? fmt::format("\\x{:02x}", c) : std::string(1, c);
  }
  if (line.size() > longest) text += "...";
  text += '\n';
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// The first slot, and those that are not 0.
std::map<Index, Index> by_slot(const std::vector<Index>& counts) {
  std::map<Index, Index> some;
  for (std::size_t slot = 0; slot < counts.size(); ++slot)
    if (slot == 0 || counts[slot] != 0) some[static_cast<Index>(slot)] = counts[slot];
  return some;
}

int code_of_the_end = 0;
void end_with_that_code(int) {
  _exit(code_of_the_end);
}

[[noreturn]] void throw_deadlock(const std::string& line) {
  MessageCounts::instance().forget();
  throw Error(Code::deadlock, line);
}

}  // namespace

/// The MPI side: a communicator of our own, so that no message meets tensor data.
struct ControlPlane::Messages {
  struct Sent {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  MPI_Comm comm = MPI_COMM_NULL;
  std::list<Sent> on_their_way;

  /// Does not wait: the other device may be doing something else.
  void send(int to, Tag tag, std::string bytes) {
    on_their_way.remove_if([](Sent& sent) {
      int done = 0;
      MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
    Sent& sent = on_their_way.emplace_back(Sent{std::move(bytes)});
    MPI_Isend(sent.bytes.data(), static_cast<int>(sent.bytes.size()), MPI_BYTE, to, tag, comm, &sent.request);
  }
  /// A message with this tag, if one has come.
  bool take(int from, Tag tag, int& source, std::string& bytes) const {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(from, tag, comm, &there, &status);
    if (!there) return false;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    bytes.resize(static_cast<std::size_t>(count));
    source = status.MPI_SOURCE;
    MPI_Recv(bytes.data(), count, MPI_BYTE, source, tag, comm, MPI_STATUS_IGNORE);
    return true;
  }
};

ControlPlane::ControlPlane() : messages_(std::make_unique<Messages>()) {}
ControlPlane::~ControlPlane() = default;

ControlPlane& ControlPlane::instance() {
  static ControlPlane plane;
  return plane;
}

void ControlPlane::start(int& argc, char**& argv) {
  own_folder_.make();
  MPI_Init(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &messages_->comm);
  MPI_Comm_rank(messages_->comm, &id_);
  MPI_Comm_size(messages_->comm, &size_);
  set_this_device(id_);
  search_.emplace(id_, size_);
  FlightRecord::instance().begin(id_);
  learn_to_wait();
}

/// The more devices share a core, the longer a device that waits lets the core to others.
void ControlPlane::learn_to_wait() {
  MPI_Comm neighbours;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours);
  int on_this_host = 1;
  MPI_Comm_size(neighbours, &on_this_host);
  MPI_Comm_free(&neighbours);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  devices_a_core_ = (on_this_host + cores - 1) / cores;
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; else a nap of 15 µs takes 65
}

void ControlPlane::keep_going(std::function<void()> advance,
                              std::function<std::vector<Blocked::Needs>()> in_flight,
                              std::function<Index()> calls) {
  advance_ = std::move(advance);
  in_flight_ = std::move(in_flight);
  calls_ = std::move(calls);
}

void ControlPlane::wait_for(const std::string& what, Blocked::Needs needs,
                            const std::function<bool()>& is_done) {
  const SourceLine where = current_call_site();
  auto describe = [&] {
    Blocked blocked;
    blocked.call = what;
    blocked.place = is_at_end_ ? fmt::format("after {} calls", calls_()) : place_of_call(calls_(), where);
    blocked.any_of = {needs};
    blocked.in_flight = in_flight_();
    blocked.is_at_end = is_at_end_;
    return blocked;
  };
  for (Wait wait; !is_done(); wait.idle(describe)) advance_();
}

void ControlPlane::Wait::pause() {
  spins_ = 0;
  if (since_ == steady_clock::time_point{}) since_ = listened_ = steady_clock::now();
  const steady_clock::duration waited = steady_clock::now() - since_;
  const steady_clock::duration shortest = nap * instance().devices_a_core_;
  if (waited < before_sleep)
    sched_yield();
  else
    std::this_thread::sleep_for(
        std::max(shortest, std::min<steady_clock::duration>(waited / naps_of_a_wait, longest_nap)));
}

void ControlPlane::Wait::listen(const std::function<Blocked()>& describe) {
  ControlPlane& plane = instance();
  const auto now = steady_clock::now();
  if (since_ == steady_clock::time_point{}) since_ = listened_ = now;
  if (now - listened_ < between_looks) return;
  listened_ = now;
  if (!std::exchange(is_noted_, true))
    FlightRecord::instance().note_state(describe().is_polling ? FlightRecord::State::polls
                                                              : FlightRecord::State::waits);
  plane.hear_of_failures();
  if (!plane.search_) return;
  plane.hear_of_deadlock(describe);
  plane.search_for_deadlock(describe, since_);
}

void ControlPlane::hear_of_failures() {
  int source = 0;
  std::string bytes;
  if (id_ != 0 || !messages_->take(MPI_ANY_SOURCE, failure, source, bytes)) return;
  auto [code, line] = unpack(bytes);
  fail(static_cast<Code>(code.at(0)), line);
}

/// A verdict on another state is out of date: this device has found it itself, and its program has gone on.
void ControlPlane::hear_of_deadlock(const std::function<Blocked()>& describe) {
  int source = 0;
  std::string bytes;
  if (!messages_->take(MPI_ANY_SOURCE, verdict, source, bytes)) return;
  const auto [length, text] = unpack(bytes);
  const auto state = static_cast<std::size_t>(length.at(0));
  if (text.substr(0, state) == my_state(describe()).packed()) throw_deadlock(text.substr(state));
}

ControlPlane::Wait::~Wait() {
  const bool has_failed = std::uncaught_exceptions() > 0;  // then the record tells that it waited
  if (is_noted_ && !has_failed) FlightRecord::instance().note_state(FlightRecord::State::runs);
}

DeviceState ControlPlane::my_state(Blocked blocked) const {
  DeviceState state{std::move(blocked), removed_, calls_()};
  for (const auto& [group, counts] : posted_) state.posted[group] = by_slot(*counts);
  return state;
}

void ControlPlane::remove(Index group) {
  removed_[group] = by_slot(*posted_.at(group));
  posted_.erase(group);
  if (removed_.size() > groups_remembered) removed_.erase(removed_.begin());
}

void ControlPlane::search_for_deadlock(const std::function<Blocked()>& describe,
                                       DeadlockSearch::Clock::time_point since) {
  int source = 0;
  std::string bytes;
  while (messages_->take(MPI_ANY_SOURCE, question, source, bytes)) search_->hear_question(source);
  while (messages_->take(MPI_ANY_SOURCE, answer, source, bytes)) search_->hear_answer(source, bytes);
  const DeadlockSearch::Outgoing out = {
      [&](int to, const std::string& text) { messages_->send(to, question, text); },
      [&](int to, const std::string& text) { messages_->send(to, answer, text); }};
  const auto found = search_->look([&] { return my_state(describe()); }, since, out);
  if (!found) return;
  const std::string line = explain_deadlock(found->states, found->stuck);
  for (int d : found->stuck) {
    const std::string state = found->states[static_cast<std::size_t>(d)]->packed();
    if (d != id_) messages_->send(d, verdict, pack({static_cast<Index>(state.size())}, state + line));
  }
  if (std::ranges::find(found->stuck, id_) != found->stuck.end()) throw_deadlock(line);
}

/// Leaves it to device 0 to print the line, and waits until device 0 should have ended this device.
void ControlPlane::tell_device_0(Code code, const std::string& line) {
  MPI_Request request;
  const std::string bytes = pack({static_cast<Index>(code)}, line);
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, failure, messages_->comm, &request);
  int sent = 0;
  for (auto start = steady_clock::now(); steady_clock::now() - start < grace;
       std::this_thread::sleep_for(1ms))
    if (!sent) MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
}

void ControlPlane::fail(Code code, const std::string& line) {
  FlightRecord& record = FlightRecord::instance();
  switch (record.claim_last_words()) {
    case FlightRecord::Speaker::this_device:
      if (code != Code::interrupted) print_line(line);  // the launcher, which a signal ends too, says that
      record.leave_last_words(static_cast<int>(code), line);
      break;
    case FlightRecord::Speaker::another_device:
      std::this_thread::sleep_for(grace);  // it ends this one
      break;
    case FlightRecord::Speaker::unknown:
      if (id_ != 0) tell_device_0(code, line);
      print_line(line);
  }
  if (size_ == 1 && std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) {  // no launcher, and MPI_Abort says more
    MPI_Finalize();
    own_folder_.remove();
    std::_Exit(static_cast<int>(code));
  }
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::abort();  // MPI_Abort does not return
}

void ControlPlane::finish(int exit_code) {
  FlightRecord::instance().note_state(FlightRecord::State::has_ended);
  MPI_Comm_free(&messages_->comm);
  // All is done and written. In one of some thousand short jobs, a thread of Open MPI 4.1 still runs while that
  // frees its memory and unloads its modules, and the process crashes.
  code_of_the_end = exit_code;
  struct sigaction ends = {}, on_fault, on_abort;
  ends.sa_handler = end_with_that_code;
  sigaction(SIGSEGV, &ends, &on_fault);
  sigaction(SIGABRT, &ends, &on_abort);
  MPI_Finalize();
  sigaction(SIGSEGV, &on_fault, nullptr);
  sigaction(SIGABRT, &on_abort, nullptr);
  own_folder_.remove();
}

}  // namespace shard::runtime
