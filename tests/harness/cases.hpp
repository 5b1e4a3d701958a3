#pragma once

/// A program of cases: each says on how many devices it runs, with which exit code its job ends, and what
/// that job says. The program lists them (`--list`), `harness/cases` makes tests of the list and checks each.

#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace shard::testing {

/// Where a case is a test, beside the emulator: in one process, unless its devices have to be processes, and on
/// the CUDA backend.
enum class Where { emulator, local_too, cuda_too, everywhere };

/// What every device does; 0 if nothing is returned, else the program's exit code.
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

/// One row of a program's table. Rows of one name share a body, the first row's.
struct Case {
  std::string name;
  std::vector<int> devices;       ///< numbers of devices; each makes one test
  int code;                       ///< exit code of the job
  std::vector<std::string> says;  ///< parts of its error line; none: it writes no error
  Body body;
  Where where = Where::local_too;
  std::map<std::string, std::string> environment = {};  ///< variables of the job
  std::function<void()> before = {};                    ///< what each process does before it is a device
};

/// Who writes an error line when a case goes wrong: one device for all, or each that meets the error.
enum class Reporters { one_device, each_device };

/// The main function of a program of cases: `--list` prints them as JSON, in one process and without MPI; a
/// case's name runs it.
int run_cases(int argc, char** argv, const std::vector<std::vector<Case>>& tables,
              Reporters reporters = Reporters::one_device);

}  // namespace shard::testing
