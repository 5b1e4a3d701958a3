/// Compiled once for all test programs: Catch2, which takes long, and functions that tests call in the main.

#define CATCH_CONFIG_RUNNER
#include "tests/harness/main.hpp"

namespace shard::testing {

bool set_numbers_of_devices(const char* file, const RunsOn& numbers) {
  return numbers_of_devices().emplace(file, numbers).second;
}

bool with_all() {
  return test_options().all;
}

bool is_to_end() {
  if (!test_options().brief) return false;
  return std::ranges::max(group().exchange("failures", failures_here)) > 0;
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
