#include <mpi.h>

#include "engine/device/runtime/job.hpp"
#include "engine/device/runtime/watchdog/control_plane.hpp"

int shard::run_on_devices(int& argc, char**& argv, const std::function<int(Communicator& world)>& body) {
  int has_begun = 0;
  MPI_Initialized(&has_begun);
  if (has_begun) refuse(Code::argument, "run_on_devices", "one call in a program", "another one");
  runtime::ControlPlane::instance().start(argc, argv);
  return runtime::run_as_device(body);
}
