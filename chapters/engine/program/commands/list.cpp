#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/program/commands.hpp"

namespace shard {

int list_chapters(Communicator& group) {
  require_distinct_strategies();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Chapter& c : chapters()) {
    nlohmann::ordered_json variants = nlohmann::ordered_json::array();
    for (const Variant& v : c.variants)
      variants.push_back({{"name", v.name},
                          {"summary", v.summary},
                          {"has_closed_forms", static_cast<bool>(v.costs)},
                          {"workload", v.workload->name()}});
    nlohmann::ordered_json strategies = nlohmann::ordered_json::object();
    for (const auto& [alias, variant] : c.strategies) strategies[alias] = variant;
    all.push_back({{"folder", c.folder},
                   {"number", c.number},
                   {"title", c.title},
                   {"variants", variants},
                   {"strategies", strategies}});
  }
  if (group.device_id() == 0) fmt::print("{}\n", all.dump(1));
  return 0;
}

}  // namespace shard
