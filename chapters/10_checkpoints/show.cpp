#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "commands.hpp"
#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"
#include "stored.hpp"

namespace shard::checkpoints {

namespace {

std::string in_bytes(std::uint64_t bytes) {
  return with_commas(static_cast<std::int64_t>(bytes));
}

/// A row for each tensor. Columns are as wide as their texts, so that lines stay short.
void print_tensors(const StoredCheckpoint& stored) {
  std::vector<std::array<std::string, 5>> rows{{"tensor", "type", "shape", "bytes", "file"}};
  for (const auto& [name, tensor] : stored.tensors())
    rows.push_back({printable(name), tensor.dtype, fmt::format("({})", fmt::join(tensor.shape, ", ")),
                    in_bytes(tensor.bytes),
                    tensor.parts.size() == 1 ? printable(tensor.parts[0].file) : "in parts:"});
  std::array<std::size_t, 4> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  auto print = [&](const std::array<std::string, 5>& row) {
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {}\n", row[0], widths[0], row[1], widths[1], row[2],
               widths[2], row[3], widths[3], row[4]);
  };
  auto row = rows.begin();
  print(*row);
  for (const auto& [name, tensor] : stored.tensors()) {
    print(*++row);
    if (tensor.parts.size() > 1)
      for (const auto& part : tensor.parts)
        fmt::print("  {:<{}}  {}\n", to_string(part.ranges), widths[0] - 2, printable(part.file));
  }
}

void print_options(const std::string& of, const std::map<std::string, std::string>& options) {
  fmt::print("{}:", of);
  for (const auto& [option, value] : options) fmt::print(" {} {}", printable(option), printable(value));
  fmt::print("\n");
}

/// What a manifest says: the format, the network, and how far a training has come.
void print_manifest(const Manifest& manifest) {
  fmt::print("{}, with a digest of each file\n", manifest.format);
  if (const auto& network = manifest.network)
    print_options("network " + printable(network->workload), network->options);
  if (const auto& training = manifest.training)
    print_options(fmt::format("step {} of a training", training->step), training->options);
}

}  // namespace

int show(const std::string& path) {
  const StoredCheckpoint stored(path);
  print_tensors(stored);
  std::uint64_t total = 0;
  for (const auto& [name, tensor] : stored.tensors()) total += tensor.bytes;
  fmt::print("\n{} tensors, {} bytes\n", stored.tensors().size(), in_bytes(total));
  for (const auto& [file, bytes] : stored.bytes_by_file())
    fmt::print("{}: {} bytes\n", printable(file), in_bytes(bytes));
  if (stored.manifest()) print_manifest(*stored.manifest());
  for (const std::string& problem : stored.problems()) fmt::print("{}\n", problem);
  return stored.problems().empty() ? 0 : static_cast<int>(Code::file);
}

}  // namespace shard::checkpoints
