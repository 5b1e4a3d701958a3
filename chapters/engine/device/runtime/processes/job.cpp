/// Jobs of devices that are processes.

#include "engine/device/runtime/job.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "engine/device/gathered.hpp"
#include "engine/device/runtime/processes/control_messages.hpp"
#include "engine/device/runtime/processes/devices_asked_for.hpp"
#include "engine/device/runtime/processes/shared_memory.hpp"
#include "engine/device/runtime/watchdog/flight_record.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

int final_exit_code = 0;
void exit_with_final_code(int) {
  _exit(final_exit_code);
}

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

OwnFolder& own_folder() {
  return device().state<OwnFolder>();
}

}  // namespace

void Job::start(int& argc, char**& argv) {
  own_folder().make();
  ::setenv("HOME", "/", 0);  // Open MPI crashes where neither this nor the user's entry names a folder
  MPI_Init(&argc, &argv);
  ControlMessages& messages = ControlMessages::instance();
  messages.begin();
  device().id = messages.id();
  FlightRecord::instance().begin(messages.id());
  if (const std::string wrong = wrong_number_of_devices(messages.size()); !wrong.empty()) {
    if (is_first_of_launcher()) fail(Code::missing, wrong);
    std::this_thread::sleep_for(time_to_print);  // the first process says it
    own_folder().remove();
    std::_Exit(static_cast<int>(Code::missing));
  }
  SharedMemory::instance().begin();
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; by default a sleep of 15 µs takes 65
}

void Job::fail(Code code, const std::string& line) {
  FlightRecord& record = FlightRecord::instance();
  const ControlMessages& messages = ControlMessages::instance();
  switch (record.claim_printing()) {
    case FlightRecord::Printer::this_device:
      if (code != Code::interrupted) print_error(line);  // the launcher gets the signal, too, and says so
      record.leave_error(static_cast<int>(code), line);
      break;
    case FlightRecord::Printer::another_device:
      std::this_thread::sleep_for(time_to_print);  // that device ends this one
      break;
    case FlightRecord::Printer::unknown:
      if (messages.id() != 0)
        messages.send_and_wait_for_the_end(ControlMessages::failure, to_bytes(std::pair(code, line)));
      print_error(line);
  }
  if (messages.size() == 1 &&
      std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) {  // without a launcher, MPI_Abort would print more
    MPI_Finalize();
    own_folder().remove();
    std::_Exit(static_cast<int>(code));
  }
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::abort();  // MPI_Abort does not return
}

void Job::finish(int exit_code) {
  FlightRecord::instance().note_end(exit_code);
  ControlMessages::instance().end();
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
  own_folder().remove();
}

}  // namespace shard::runtime

bool shard::devices_share_a_process() {
  return false;
}

int shard::run_on_devices(int& argc, char**& argv, const std::function<int(Communicator& world)>& body) {
  int has_begun = 0;
  MPI_Initialized(&has_begun);
  if (has_begun) refuse(Code::argument, "run_on_devices", "one call in a program", "another one");
  runtime::Job::start(argc, argv);
  return runtime::run_as_device(body);
}
