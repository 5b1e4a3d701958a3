/// The main function of the programs of ./tests/bench: parses the command line, then calls measure_all.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <regex>

#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

namespace {

/// Parses the sizes of collectives and of networks. Without any of a kind, its defaults stay.
void read_sizes(const std::vector<std::string>& items, Options& options) {
  const std::regex bytes("([1-9][0-9]{0,8})([kM]?)");
  const std::regex network("([1-9][0-9]{0,4})x([1-9][0-9]{0,4})x([1-9][0-9]{0,4})");
  constexpr Index most = Index{1} << 30;
  for (const std::string& item : items) {
    std::smatch match;
    if (std::regex_match(item, match, network)) {
      options.networks.push_back({std::stol(match[1]), std::stol(match[2]), std::stol(match[3])});
      continue;
    }
    Index size = 0;
    if (std::regex_match(item, match, bytes))
      size = std::stol(match[1]) * (match[2] == "k" ? 1 << 10 : match[2] == "M" ? 1 << 20 : 1);
    if (size == 0 || size > most || size % 4 != 0)
      throw Error(
          Code::usage,
          fmt::format("bench: --sizes: expected bytes, a multiple of 4 up to 1024M, such as 64k or 2M, or "
                      "BATCHxWIDTHxHIDDEN, each up to 99999, given '{}'",
                      item));
    options.bytes.push_back(size);
  }
  constexpr Index k = 1024;
  if (options.bytes.empty()) options.bytes = {4, k, 16 * k, 64 * k, 256 * k, k * k, 4 * k * k, 16 * k * k};
  if (options.networks.empty()) options.networks = default_networks();
}

int run(Communicator& world, int argc, char** argv) {
  CLI::App app("Measures the emulator against raw MPI and raw BLAS; run by ./tests/bench", "bench");
  Options options;
  std::vector<std::string> sizes;
  app.add_option("--sizes", sizes)->delimiter(',');
  app.add_option("--layers", options.layers)->check(CLI::Range(1, 1024));
  app.add_option("--variant", options.variant);
  app.add_option("--mesh", options.mesh);
  app.add_flag("--quick", options.is_quick);
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.0, 600.0));
  app.add_option("--json", options.json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    std::ranges::replace(what, '\n', ' ');
    throw Error(Code::usage, fmt::format("bench: {} (--help lists the options)", what));
  }
  read_sizes(sizes, options);
  Results results(world, options);
  measure_all(world, options, results);
  results.write();
  return 0;
}

}  // namespace

}  // namespace shard::bench

int main(int argc, char** argv) {
  return shard::run_on_devices(
      argc, argv, [&](shard::Communicator& world) { return shard::bench::run(world, argc, argv); });
}
