#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "commands.hpp"
#include "engine/basics/options.hpp"
#include "engine/basics/printable.hpp"
#include "engine/basics/ranges.hpp"
#include "engine/device/error.hpp"
#include "engine/files/safetensors/element_types.hpp"
#include "stored.hpp"

namespace shard::checkpoints {

namespace {

/// An element as a number that grows with its value, by one from each number of its type to the next one.
std::int64_t place_of(const std::byte* element, std::uint64_t bytes, bool is_floating) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, bytes);
  const std::uint64_t sign = std::uint64_t{1} << (8 * bytes - 1);
  if (!is_floating) return static_cast<std::int64_t>(bits);
  return (bits & sign) != 0 ? -static_cast<std::int64_t>(bits & (sign - 1)) : static_cast<std::int64_t>(bits);
}

/// What differs between two tensors of one type and shape.
struct Difference {
  std::uint64_t elements = 0;  ///< that differ
  std::uint64_t largest = 0;   ///< in units in the last place
  std::uint64_t first = 0;     ///< the first one's number, row-major

  void add(const std::vector<std::byte>& one, const std::vector<std::byte>& other, const Stored& tensor,
           std::uint64_t begin) {
    const std::uint64_t size = safetensors::element_bytes(tensor.dtype);
    const bool is_floating = safetensors::is_floating(tensor.dtype);
    for (std::uint64_t i = 0; i < one.size(); i += size) {
      if (std::memcmp(&one[i], &other[i], size) == 0) continue;
      if (elements++ == 0) first = (begin + i) / size;
      const std::int64_t a = place_of(&one[i], size, is_floating), b = place_of(&other[i], size, is_floating);
      largest = std::max(largest, a > b ? static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b)
                                        : static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a));
    }
  }
};

/// A line, or nothing where the two are equal.
std::string compare(const StoredCheckpoint& one, const StoredCheckpoint& other, const std::string& name) {
  const Stored &a = one.tensors().at(name), &b = other.tensors().at(name);
  if (a.shape != b.shape) return fmt::format("shapes {} and {}", to_string(a.shape), to_string(b.shape));
  if (a.dtype != b.dtype) return fmt::format("types {} and {}", a.dtype, b.dtype);
  Difference d;
  for (std::uint64_t done = 0; done < a.bytes; done += piece_bytes) {
    const std::uint64_t now = std::min<std::uint64_t>(piece_bytes, a.bytes - done);
    d.add(one.read(name, done, now), other.read(name, done, now), a, done);
  }
  if (d.elements == 0) return {};
  return fmt::format("{} elements differ, by at most {} ulp, the first at {}",
                     with_commas(static_cast<std::int64_t>(d.elements)),
                     with_commas(static_cast<std::int64_t>(d.largest)),
                     to_string(shard::place_of(static_cast<Index>(d.first), a.shape)));
}

/// Prints the options of the two networks that differ, if both checkpoints say them. Returns their number. An
/// option that names a file is a path on the machine that saved it.
std::size_t compare_networks(const StoredCheckpoint& one, const StoredCheckpoint& other) {
  if (!one.manifest() || !other.manifest() || !one.manifest()->network || !other.manifest()->network)
    return 0;
  const NetworkRecord &a = *one.manifest()->network, &b = *other.manifest()->network;
  std::map<std::string, std::pair<std::string, std::string>> all;
  all["workload"] = {a.workload, b.workload};
  for (const auto& [name, text] : a.options) all[name].first = text;
  for (const auto& [name, text] : b.options) all[name].second = text;
  std::size_t different = 0;
  for (const auto& [name, texts] : all) {
    if (is_same_value(texts.first, texts.second) || name == "--data") continue;
    auto shown = [](const std::string& text) { return text.empty() ? "not said" : printable(text); };
    fmt::print("network: {}: {} and {}\n", printable(name), shown(texts.first), shown(texts.second));
    ++different;
  }
  return different;
}

}  // namespace

int diff(const std::string& one, const std::string& other) {
  const StoredCheckpoint a(one), b(other);
  const std::size_t other_options = compare_networks(a, b);
  std::size_t equal = 0, different = 0;
  auto say = [&](const std::string& name, const std::string& what) {
    fmt::print("{}: {}\n", printable(name), what);
    ++different;
  };
  for (const auto& [name, tensor] : a.tensors()) {
    const std::string what = b.tensors().contains(name) ? compare(a, b, name) : "only in " + printable(one);
    if (what.empty())
      ++equal;
    else
      say(name, what);
  }
  for (const auto& [name, tensor] : b.tensors())
    if (!a.tensors().contains(name)) say(name, "only in " + printable(other));
  fmt::print("{} tensors are equal, {} differ\n", equal, different);
  return different + other_options == 0 ? 0 : static_cast<int>(Code::differs);
}

}  // namespace shard::checkpoints
