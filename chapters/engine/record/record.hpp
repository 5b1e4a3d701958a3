#pragma once

/// The record of a run as one JSON document; docs/record.md has its schema.

#include <string>
#include <vector>

#include "engine/record/log.hpp"

namespace shard {

inline constexpr int record_version = 1;

/// How a run ended: its exit code, and the report of an error.
struct Ending {
  int code = 0;
  std::string report = {};
};

/// The record of the logs of all devices, by id. `job` says what ran. A device whose log is lost has none.
Entry record_of(const Entry& job, const Ending& ending, const std::vector<Log>& logs);

}  // namespace shard
