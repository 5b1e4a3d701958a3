#include "engine/record/record.hpp"

#include <algorithm>

#include "engine/record/section.hpp"

namespace shard {

namespace {

bool begins_section(const Entry& entry) {
  return entry.at("is") == "section";
}

/// When each section began on the first device that did.
using Origins = std::map<std::string, Index>;
Origins origins_of(const std::vector<Log>& logs) {
  Origins origins;
  for (const Log& log : logs)
    for (const Entry& entry : log)
      if (begins_section(entry)) {
        const auto [first, is_new] = origins.try_emplace(entry.at("name"), entry.at("t").get<Index>());
        if (!is_new) first->second = std::min(first->second, entry.at("t").get<Index>());
      }
  return origins;
}

Entry sections_of(int device, const Log& log, const Origins& origins, Tables& tables, Layouts& layouts) {
  Entry sections = Entry::array();
  for (auto begin = log.begin(); begin != log.end();) {
    const auto end = std::find_if(begin + 1, log.end(), begins_section);
    Section section(device, *begin, tables, layouts);
    for (auto entry = begin + 1; entry != end; ++entry) section.add(*entry);
    const Index origin = origins.at(begin->at("name"));
    sections.push_back(section.finish(origin));
    sections.back()["began"] =
        origin - std::ranges::min_element(origins, {}, &Origins::value_type::second)->second;
    begin = end;
  }
  return sections;
}

}  // namespace

Entry record_of(const Entry& job, const Ending& ending, const std::vector<Log>& logs) {
  Tables tables;
  Layouts layouts;
  const Origins origins = origins_of(logs);
  Entry devices = Entry::array();
  for (const Log& log : logs) {
    const int device = static_cast<int>(devices.size());
    devices.push_back({{"device", device}, {"sections", sections_of(device, log, origins, tables, layouts)}});
  }
  Entry end = {{"code", ending.code}};
  if (!ending.report.empty()) end["report"] = ending.report;
  return {{"format", "shardbook record"},
          {"version", record_version},
          {"job", job},
          {"end", end},
          {"files", tables.files.all()},
          {"lines", tables.lines.all()},
          {"groups", tables.groups.all()},
          {"layouts", layouts.all()},
          {"contexts", tables.contexts.all()},
          {"sends", tables.sends.all()},
          {"what", tables.what.all()},
          {"devices", devices}};
}

}  // namespace shard
