#include "engine/dispatch/places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <tuple>

#include "engine/basics/byte_sizes.hpp"
#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"

namespace shard::dispatch {

namespace {

[[noreturn]] void refuse(const std::string& expected, const std::string& given) {
  throw Error(Code::usage, fmt::format("--memory: expected {}, given {}", expected, printable(given, 60)));
}

std::int64_t parse_bytes(const std::string& text, const std::string& given) {
  const std::optional<std::int64_t> bytes = bytes_in(text);
  if (!bytes || std::toupper(text.back()) != 'B')
    refuse("a size with a unit, such as 24GiB, 500MB or 1000B", given);
  return *bytes;
}

}  // namespace

bool is_device(const std::string& place) {
  return !place.empty() && place.size() < 7 && place.find_first_not_of("0123456789") == std::string::npos &&
         (place == "0" || place[0] != '0');
}

bool is_place(const std::string& text) {
  return is_device(text) || text == host_place || text == disk_place;
}

bool is_before(const std::string& place, const std::string& other) {
  auto key = [](const std::string& p) {
    return is_device(p) ? std::tuple(0, std::stoi(p)) : std::tuple(p == host_place ? 1 : 2, 0);
  };
  return key(place) < key(other);
}

Memory parse_memory(const std::string& text) {
  Memory memory;
  std::istringstream parts(text + ',');
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t sign = part.find('=');
    if (sign == std::string::npos) refuse("places and sizes, such as 0=24GiB,1=24GiB,cpu=64GiB", text);
    const std::string place = part.substr(0, sign);
    if (!is_place(place)) refuse("a place, which is 0, 1, ..., cpu or disk", place);
    if (std::ranges::find(memory, place, &PlaceMemory::place) != memory.end())
      refuse("each place once", place + " twice");
    memory.push_back({place, parse_bytes(part.substr(sign + 1), part)});
  }
  std::ranges::sort(memory, is_before, &PlaceMemory::place);
  return memory;
}

}  // namespace shard::dispatch
