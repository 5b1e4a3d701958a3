#pragma once

/// Values as messages between devices: all that nlohmann-json converts, in CBOR, since JSON has no infinity.

#include <nlohmann/json.hpp>

#include "engine/device/device.hpp"

namespace shard {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Range, begin, end)

/// A value as bytes, and back.
/// @{
template <class T>
std::string to_bytes(const T& value) {
  std::string bytes;
  nlohmann::json::to_cbor(value, bytes);
  return bytes;
}
template <class T>
T from_bytes(const std::string& bytes) {
  return nlohmann::json::from_cbor(bytes).get<T>();
}
/// @}

/// Communicator::gather, and gather_for_all, of values.
/// @{
template <class T>
std::vector<T> gather(Communicator& group, const char* what, const T& mine,
                      SourceLine where = SourceLine::current()) {
  std::vector<T> all;
  for (const std::string& theirs : group.gather(what, to_bytes(mine), where))
    all.push_back(from_bytes<T>(theirs));
  return all;
}
template <class T>
std::vector<T> gather_for_all(Communicator& group, const char* what, const T& mine,
                              SourceLine where = SourceLine::current()) {
  std::vector<T> all;
  for (const std::string& theirs : group.gather_for_all(what, to_bytes(mine), where))
    all.push_back(from_bytes<T>(theirs));
  return all;
}
/// @}

}  // namespace shard
