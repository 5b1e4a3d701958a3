#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "commands.hpp"
#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"
#include "stored.hpp"

namespace shard::checkpoints {

namespace {

std::string in_bytes(std::uint64_t bytes) {
  return with_commas(static_cast<std::int64_t>(bytes));
}

void print_tensors(const StoredCheckpoint& stored) {
  std::size_t width = 6;
  for (const auto& [name, tensor] : stored.tensors()) width = std::max(width, printable(name).size());
  fmt::print("{:<{}}  {:<5}  {:<18}  {:>15}  {}\n", "tensor", width, "type", "shape", "bytes", "file");
  for (const auto& [name, tensor] : stored.tensors()) {
    const bool is_whole = tensor.parts.size() == 1;
    fmt::print("{:<{}}  {:<5}  {:<18}  {:>15}  {}\n", printable(name), width, tensor.dtype,
               fmt::format("({})", fmt::join(tensor.shape, ", ")), in_bytes(tensor.bytes),
               is_whole ? printable(tensor.parts[0].file) : "in parts:");
    for (std::size_t i = 0; !is_whole && i < tensor.parts.size(); ++i)
      fmt::print("  {:<{}}  {}\n", to_string(tensor.parts[i].ranges), width + 44,
                 printable(tensor.parts[i].file));
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
