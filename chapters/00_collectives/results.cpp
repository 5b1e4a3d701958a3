#include "results.hpp"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace shard::primer {

void write_report(const std::string& path, const std::vector<Outcome>& outcomes) {
  nlohmann::ordered_json report = {{"chapter", "00"},
                                   {"title", "collectives"},
                                   {"devices", world().num_devices()},
                                   {"ok", all_right(outcomes)},
                                   {"collectives", nlohmann::ordered_json::array()}};
  for (const Outcome& o : outcomes)
    report["collectives"].push_back({{"name", o.name},
                                     {"ok", o.is_right},
                                     {"bytes", o.bytes.measured},
                                     {"closed_form", o.bytes.formula},
                                     {"messages", o.messages.measured},
                                     {"closed_form_messages", o.messages.formula}});
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished);
  file << report.dump(2) << '\n';
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0)
    throw Error(Code::file, path + ": expected to write the report, given no writable file");
}

}  // namespace shard::primer
