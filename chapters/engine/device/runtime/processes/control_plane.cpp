#include "engine/device/runtime/watchdog/control_plane.hpp"

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
#include "engine/device/runtime/processes/deadlock_search.hpp"
#include "engine/device/runtime/processes/own_folder.hpp"
#include "engine/device/runtime/watchdog/flight_record.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr auto before_sleep = 100us;  // a device that waits longer lets the core sleep
constexpr auto nap = 15us;
constexpr auto longest_nap = 200us;
constexpr int naps_of_a_wait = 64;  // a longer nap adds at most this part to the wait
constexpr auto between_looks = 1ms;
constexpr auto grace = 3000ms;  // the time in which device 0 must print another device's last line

enum Tag { failure = 1, question, answer, verdict };

int code_of_the_end = 0;
void end_with_that_code(int) {
  _exit(code_of_the_end);
}

}  // namespace

/// The MPI side: a communicator of our own, so that no message meets tensor data.
struct ControlPlane::Peers {
  struct Sent {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  MPI_Comm comm = MPI_COMM_NULL;
  std::list<Sent> on_their_way;
  OwnFolder own_folder;
  std::optional<DeadlockSearch> search;
  int devices_a_core = 1;  // on this host, rounded up

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
  void learn_to_wait();
  void hear_of_failures(ControlPlane& plane) const;
  void hear_of_deadlock(const ControlPlane& plane, const std::function<Blocked()>& describe) const;
  void search_for_deadlock(const ControlPlane& plane, const std::function<Blocked()>& describe,
                           DeadlockSearch::Clock::time_point since);
  void tell_device_0(Code code, const std::string& line);
};

const int ControlPlane::Wait::spins_before_a_pause = 64;

ControlPlane::ControlPlane() : peers_(std::make_unique<Peers>()) {}
ControlPlane::~ControlPlane() = default;

void ControlPlane::start(int& argc, char**& argv) {
  peers_->own_folder.make();
  MPI_Init(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &peers_->comm);
  MPI_Comm_rank(peers_->comm, &id_);
  MPI_Comm_size(peers_->comm, &size_);
  device().id = id_;
  peers_->search.emplace(id_, size_);
  FlightRecord::instance().begin(id_);
  peers_->learn_to_wait();
}

/// The more devices share a core, the longer a device that waits lets the core to others.
void ControlPlane::Peers::learn_to_wait() {
  MPI_Comm neighbours;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours);
  int on_this_host = 1;
  MPI_Comm_size(neighbours, &on_this_host);
  MPI_Comm_free(&neighbours);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  devices_a_core = (on_this_host + cores - 1) / cores;
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; else a nap of 15 µs takes 65
}

void ControlPlane::Wait::pause(const std::function<Blocked()>&) {
  spins_ = 0;
  if (since_ == steady_clock::time_point{}) since_ = listened_ = steady_clock::now();
  const steady_clock::duration waited = steady_clock::now() - since_;
  const steady_clock::duration shortest = nap * instance().peers_->devices_a_core;
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
  Peers& peers = *plane.peers_;
  peers.hear_of_failures(plane);
  if (!peers.search) return;
  peers.hear_of_deadlock(plane, describe);
  peers.search_for_deadlock(plane, describe, since_);
}

void ControlPlane::Peers::hear_of_failures(ControlPlane& plane) const {
  int source = 0;
  std::string bytes;
  if (plane.id() != 0 || !take(MPI_ANY_SOURCE, failure, source, bytes)) return;
  auto [code, line] = unpack(bytes);
  plane.fail(static_cast<Code>(code.at(0)), line);
}

/// A verdict on another state is out of date: this device has found it itself, and its program has gone on.
void ControlPlane::Peers::hear_of_deadlock(const ControlPlane& plane,
                                           const std::function<Blocked()>& describe) const {
  int source = 0;
  std::string bytes;
  if (!take(MPI_ANY_SOURCE, verdict, source, bytes)) return;
  const auto [length, text] = unpack(bytes);
  const auto state = static_cast<std::size_t>(length.at(0));
  if (text.substr(0, state) == plane.my_state(describe()).packed()) throw_deadlock(text.substr(state));
}

ControlPlane::Wait::~Wait() {
  const bool has_failed = std::uncaught_exceptions() > 0;  // then the record tells that it waited
  if (is_noted_ && !has_failed) FlightRecord::instance().note_state(FlightRecord::State::runs);
}

void ControlPlane::Peers::search_for_deadlock(const ControlPlane& plane,
                                              const std::function<Blocked()>& describe,
                                              DeadlockSearch::Clock::time_point since) {
  int source = 0;
  std::string bytes;
  while (take(MPI_ANY_SOURCE, question, source, bytes)) search->hear_question(source);
  while (take(MPI_ANY_SOURCE, answer, source, bytes)) search->hear_answer(source, bytes);
  const DeadlockSearch::Outgoing out = {[&](int to, const std::string& text) { send(to, question, text); },
                                        [&](int to, const std::string& text) { send(to, answer, text); }};
  const auto found = search->look([&] { return plane.my_state(describe()); }, since, out);
  if (!found) return;
  const std::string line = explain_deadlock(found->states, found->stuck);
  for (int d : found->stuck) {
    const std::string state = found->states[static_cast<std::size_t>(d)]->packed();
    if (d != plane.id()) send(d, verdict, pack({static_cast<Index>(state.size())}, state + line));
  }
  if (std::ranges::find(found->stuck, plane.id()) != found->stuck.end()) throw_deadlock(line);
}

/// Leaves it to device 0 to print the line, and waits until device 0 should have ended this device.
void ControlPlane::Peers::tell_device_0(Code code, const std::string& line) {
  MPI_Request request;
  const std::string bytes = pack({static_cast<Index>(code)}, line);
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, failure, comm, &request);
  int sent = 0;
  for (auto start = steady_clock::now(); steady_clock::now() - start < grace;
       std::this_thread::sleep_for(1ms))
    if (!sent) MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
}

void ControlPlane::note_work() {}

void ControlPlane::all_are_at_end() {
  peers_->search.reset();
}

void ControlPlane::fail(Code code, const std::string& line) {
  FlightRecord& record = FlightRecord::instance();
  switch (record.claim_last_words()) {
    case FlightRecord::Speaker::this_device:
      if (code != Code::interrupted) print_error(line);  // the launcher, which a signal ends too, says that
      record.leave_last_words(static_cast<int>(code), line);
      break;
    case FlightRecord::Speaker::another_device:
      std::this_thread::sleep_for(grace);  // it ends this one
      break;
    case FlightRecord::Speaker::unknown:
      if (id_ != 0) peers_->tell_device_0(code, line);
      print_error(line);
  }
  if (size_ == 1 && std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) {  // no launcher, and MPI_Abort says more
    MPI_Finalize();
    peers_->own_folder.remove();
    std::_Exit(static_cast<int>(code));
  }
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::abort();  // MPI_Abort does not return
}

void ControlPlane::finish(int exit_code) {
  FlightRecord::instance().note_state(FlightRecord::State::has_ended);
  MPI_Comm_free(&peers_->comm);
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
  peers_->own_folder.remove();
}

}  // namespace shard::runtime
