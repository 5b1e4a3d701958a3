#pragma once

/// A program of cases. Each case has numbers of devices, the exit code of its job, and its expected error
/// line. `--list` prints the cases, and `harness/cases` makes a test of each and checks it.

#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace shard::testing {

/// The backends, beside the emulator, on which a case is a test: devices in one process, unless they must be
/// processes, and CUDA.
enum class Where { emulator, local_too, cuda_too, everywhere };

/// The code of every device. It returns the program's exit code, or nothing for 0.
class Body {
 public:
  template <class Action>
  Body(Action action)
      : run_([action] {
          if constexpr (std::is_void_v<decltype(action())>)
            return action(), 0;
          else
            return action();
        }) {}
  int operator()() const { return run_(); }

 private:
  std::function<int()> run_;
};

/// One row of a program's table. Rows with the same name share the first row's body.
struct Case {
  std::string name;
  std::vector<int> devices;       ///< each makes one test
  int code;                       ///< exit code of the job
  std::vector<std::string> says;  ///< parts of its error line; empty: it writes no error
  Body body;
  Where where = Where::local_too;
  std::map<std::string, std::string> environment = {};  ///< variables of the job
  std::function<void()> before = {};                    ///< called in each process before it is a device
};

/// Which devices write an error line when a case goes wrong: one for all, or each that gets the error.
enum class Reporters { one_device, each_device };

/// The main function of a program of cases. `--list` prints them as JSON, in one process and without MPI; the
/// name of a case runs it.
int run_cases(int argc, char** argv, const std::vector<std::vector<Case>>& tables,
              Reporters reporters = Reporters::one_device);

}  // namespace shard::testing
