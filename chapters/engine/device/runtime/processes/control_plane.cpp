#include "engine/device/runtime/watchdog/control_plane.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <list>
#include <thread>
#include <utility>

#include "engine/device/gathered.hpp"
#include "engine/device/runtime/job.hpp"
#include "engine/device/runtime/processes/deadlock_search.hpp"
#include "engine/device/runtime/processes/devices_asked_for.hpp"
#include "engine/device/runtime/processes/shared_memory.hpp"
#include "engine/device/runtime/watchdog/flight_record.hpp"
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
constexpr auto grace = 3000ms;  // for device 0 to print another device's error

enum Tag { failure = 1, question, answer, verdict };

int final_exit_code = 0;
void exit_with_final_code(int) {
  _exit(final_exit_code);
}

}  // namespace

/// The folder for Open MPI's temporary files, for a process without a launcher. Without a folder of their own,
/// processes that start at the same time race for a common one, and some fail. The process locks its folder
/// (flock), so that chapters/job_folder.py can recognize and remove the folder of a killed process.
class OwnFolder {
 public:
  /// Makes the folder and passes its name to Open MPI, unless a launcher or the user has chosen one. Call it
  /// before MPI_Init.
  void make() {
    if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("OMPI_MCA_orte_tmpdir_base") != nullptr)
      return;
    std::error_code ignored;
    std::string path = std::filesystem::temp_directory_path(ignored) / "shardbook-job-1_XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return;  // Open MPI will report the error
    ::flock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), LOCK_EX | LOCK_NB);
    path_ = path;
    ::setenv("OMPI_MCA_orte_tmpdir_base", path_.c_str(), 1);
  }
  /// Call it after MPI_Finalize.
  void remove() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_;
};

/// The messages of the control plane. They have an MPI communicator of their own, so none matches tensor data.
struct ControlPlane::Peers {
  struct Sent {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  MPI_Comm comm = MPI_COMM_NULL;
  std::list<Sent> in_flight;
  OwnFolder own_folder;
  std::optional<DeadlockSearch> search;

  /// Does not wait for the receiver, which may be computing.
  void send(int to, Tag tag, std::string bytes) {
    in_flight.remove_if([](Sent& sent) {
      int done = 0;
      MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
    Sent& sent = in_flight.emplace_back(Sent{std::move(bytes)});
    MPI_Isend(sent.bytes.data(), static_cast<int>(sent.bytes.size()), MPI_BYTE, to, tag, comm, &sent.request);
  }
  /// Receives a message with this tag, if one has arrived.
  bool try_receive(int from, Tag tag, int& source, std::string& bytes) const {
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
  void receive_failures(ControlPlane& plane) const;
  void receive_verdict(const ControlPlane& plane, const std::function<Blocked()>& describe) const;
  void search_for_deadlock(const ControlPlane& plane, const std::function<Blocked()>& describe,
                           DeadlockSearch::Clock::time_point since);
  void send_error_to_device_0(Code code, const std::string& line);
};

const int ControlPlane::Wait::spins_before_a_pause = 64;

ControlPlane::ControlPlane() : peers_(std::make_unique<Peers>()) {}
ControlPlane::~ControlPlane() = default;

void ControlPlane::start(int& argc, char**& argv) {
  peers_->own_folder.make();
  ::setenv("HOME", "/", 0);  // Open MPI crashes where neither this nor the user's entry names a folder
  MPI_Init(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &peers_->comm);
  MPI_Comm_rank(peers_->comm, &id_);
  MPI_Comm_size(peers_->comm, &size_);
  device().id = id_;
  peers_->search.emplace(id_, size_);
  FlightRecord::instance().begin(id_);
  if (const std::string wrong = wrong_number_of_devices(size_); !wrong.empty()) {
    if (is_first_of_launcher()) fail(Code::missing, wrong);
    std::this_thread::sleep_for(grace);  // the first process says it
    peers_->own_folder.remove();
    std::_Exit(static_cast<int>(Code::missing));
  }
  SharedMemory::instance().begin();
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; by default a sleep of 15 µs takes 65
}

void ControlPlane::Wait::pause(const std::function<Blocked()>&) {
  spins_ = 0;
  if (since_ == steady_clock::time_point{}) since_ = listened_ = steady_clock::now();
  const steady_clock::duration waited = steady_clock::now() - since_;
  const int sharing = SharedMemory::instance().devices_per_core();
  if (waited < (sharing == 1 ? yield_time : shared_yield_time)) return static_cast<void>(sched_yield());
  const steady_clock::duration shortest = shortest_sleep * sharing;
  std::this_thread::sleep_for(
      std::max(shortest, std::min<steady_clock::duration>(waited / sleeps_per_wait, longest_sleep)));
}

void ControlPlane::Wait::listen(const std::function<Blocked()>& describe) {
  ControlPlane& plane = instance();
  const auto now = steady_clock::now();
  if (since_ == steady_clock::time_point{}) since_ = listened_ = now;
  if (now - listened_ < listen_interval) return;
  listened_ = now;
  if (!std::exchange(is_noted_, true))
    FlightRecord::instance().note_state(describe().is_polling ? FlightRecord::State::polls
                                                              : FlightRecord::State::waits);
  Peers& peers = *plane.peers_;
  peers.receive_failures(plane);
  if (!peers.search) return;
  peers.receive_verdict(plane, describe);
  peers.search_for_deadlock(plane, describe, since_);
}

void ControlPlane::Peers::receive_failures(ControlPlane& plane) const {
  int source = 0;
  std::string bytes;
  if (plane.id() != 0 || !try_receive(MPI_ANY_SOURCE, failure, source, bytes)) return;
  const auto [code, line] = from_bytes<std::pair<Code, std::string>>(bytes);
  plane.fail(code, line);
}

/// Ignores a verdict on an earlier state: this device found that deadlock itself, and its program continued.
void ControlPlane::Peers::receive_verdict(const ControlPlane& plane,
                                          const std::function<Blocked()>& describe) const {
  int source = 0;
  std::string bytes;
  if (!try_receive(MPI_ANY_SOURCE, verdict, source, bytes)) return;
  const auto [state, line] = from_bytes<std::pair<std::string, std::string>>(bytes);
  if (state == plane.my_state(describe()).packed()) throw_deadlock(line);
}

ControlPlane::Wait::~Wait() {
  const bool has_failed =
      std::uncaught_exceptions() > 0;  // then the record still says that it waits or polls
  if (is_noted_ && !has_failed) FlightRecord::instance().note_state(FlightRecord::State::runs);
}

void ControlPlane::Peers::search_for_deadlock(const ControlPlane& plane,
                                              const std::function<Blocked()>& describe,
                                              DeadlockSearch::Clock::time_point since) {
  int source = 0;
  std::string bytes;
  while (try_receive(MPI_ANY_SOURCE, question, source, bytes)) search->on_question(source);
  while (try_receive(MPI_ANY_SOURCE, answer, source, bytes)) search->on_answer(source, bytes);
  const DeadlockSearch::Outgoing out = {[&](int to, const std::string& text) { send(to, question, text); },
                                        [&](int to, const std::string& text) { send(to, answer, text); }};
  const auto found = search->poll([&] { return plane.my_state(describe()); }, since, out);
  if (!found) return;
  const std::string line = explain_deadlock(found->states, found->stuck);
  for (int d : found->stuck) {
    const std::string state = found->states[static_cast<std::size_t>(d)]->packed();
    if (d != plane.id()) send(d, verdict, to_bytes(std::pair(state, line)));
  }
  if (std::ranges::find(found->stuck, plane.id()) != found->stuck.end()) throw_deadlock(line);
}

/// Sends the error to device 0, which prints it and ends this device. Returns if that does not happen in time.
void ControlPlane::Peers::send_error_to_device_0(Code code, const std::string& line) {
  MPI_Request request;
  const std::string bytes = to_bytes(std::pair(code, line));
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, failure, comm, &request);
  int sent = 0;
  for (auto start = steady_clock::now(); steady_clock::now() - start < grace;
       std::this_thread::sleep_for(1ms))
    if (!sent) MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
}

void ControlPlane::yield_before_work() {}

void ControlPlane::all_are_at_end() {
  peers_->search.reset();
}

void ControlPlane::fail(Code code, const std::string& line) {
  FlightRecord& record = FlightRecord::instance();
  switch (record.claim_printing()) {
    case FlightRecord::Printer::this_device:
      if (code != Code::interrupted) print_error(line);  // the launcher gets the signal, too, and says so
      record.leave_error(static_cast<int>(code), line);
      break;
    case FlightRecord::Printer::another_device:
      std::this_thread::sleep_for(grace);  // that device ends this one
      break;
    case FlightRecord::Printer::unknown:
      if (id_ != 0) peers_->send_error_to_device_0(code, line);
      print_error(line);
  }
  if (size_ == 1 &&
      std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) {  // without a launcher, MPI_Abort would print more
    MPI_Finalize();
    peers_->own_folder.remove();
    std::_Exit(static_cast<int>(code));
  }
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::abort();  // MPI_Abort does not return
}

void ControlPlane::finish(int exit_code) {
  FlightRecord::instance().note_end(exit_code);
  MPI_Comm_free(&peers_->comm);
  // All results are written. In one of some thousand short jobs, Open MPI 4.1 crashes in MPI_Finalize: one of its
  // threads still runs while memory is freed and modules are unloaded. The process then exits with its own code.
  final_exit_code = exit_code;
  struct sigaction ends = {}, on_fault, on_abort;
  ends.sa_handler = exit_with_final_code;
  sigaction(SIGSEGV, &ends, &on_fault);
  sigaction(SIGABRT, &ends, &on_abort);
  MPI_Finalize();
  sigaction(SIGSEGV, &on_fault, nullptr);
  sigaction(SIGABRT, &on_abort, nullptr);
  peers_->own_folder.remove();
}

}  // namespace shard::runtime

bool shard::devices_share_a_process() {
  return false;
}

int shard::run_on_devices(int& argc, char**& argv, const std::function<int(Communicator& world)>& body) {
  int has_begun = 0;
  MPI_Initialized(&has_begun);
  if (has_begun) refuse(Code::argument, "run_on_devices", "one call in a program", "another one");
  runtime::ControlPlane::instance().start(argc, argv);
  return runtime::run_as_device(body);
}
