#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "commands.hpp"
#include "engine/device/error.hpp"
#include "engine/printable.hpp"
#include "stored.hpp"

namespace shard::checkpoints {

int show(const std::string& path) {
  const StoredCheckpoint stored(path);
  std::size_t width = 6;
  std::uint64_t total = 0;
  std::map<std::string, std::uint64_t> in_file;
  for (const auto& [name, tensor] : stored.tensors()) {
    width = std::max(width, printable(name).size());
    in_file[tensor.file] += tensor.bytes;
    total += tensor.bytes;
  }
  fmt::print("{:<{}}  {:<5}  {:<18}  {:>15}  {}\n", "tensor", width, "type", "shape", "bytes", "file");
  for (const auto& [name, tensor] : stored.tensors())
    fmt::print("{:<{}}  {:<5}  {:<18}  {:>15}  {}\n", printable(name), width, tensor.dtype,
               fmt::format("({})", fmt::join(tensor.shape, ", ")),
               with_commas(static_cast<std::int64_t>(tensor.bytes)), printable(tensor.file));
  fmt::print("\n{} tensors, {} bytes\n", stored.tensors().size(),
             with_commas(static_cast<std::int64_t>(total)));
  for (const auto& [file, bytes] : in_file)
    fmt::print("{}: {} bytes\n", printable(file), with_commas(static_cast<std::int64_t>(bytes)));
  for (const std::string& problem : stored.problems()) fmt::print("{}\n", problem);
  return stored.problems().empty() ? 0 : static_cast<int>(Code::file);
}

}  // namespace shard::checkpoints
