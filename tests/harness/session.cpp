/// What is compiled once for all test programs: Catch2 itself, which takes long, and what tests ask the main for.

#define CATCH_CONFIG_RUNNER
#include "tests/harness/main.hpp"

namespace shard::testing {

bool set_numbers_of_devices(const char* file, const RunsOn& numbers) {
  return numbers_of_devices().emplace(file, numbers).second;
}

bool with_all() {
  return test_options().all;
}

std::string& chapter_under_test() {
  static std::string folder;
  return folder;
}

int run_session(int argc, char** argv, const std::function<void(Catch::ConfigData&)>& configure) {
  Catch::Session session;
  if (int refused = session.applyCommandLine(argc, argv); refused != 0) return refused;
  configure(session.configData());
  return session.run();
}

}  // namespace shard::testing
