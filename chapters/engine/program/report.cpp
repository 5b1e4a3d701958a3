#include "engine/program/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace shard {

using nlohmann::json;

namespace {

json to_json(const Figure& f) {
  return {{"measured", f.measured}, {"formula", f.formula}};
}
Figure figure_from(const json& j) {
  return {j.at("measured"), j.at("formula")};
}

std::string with_commas(Index number) {
  std::string digits = fmt::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

/// The largest of any device, and the form where that is missed: "12,288 =" or "12,288 not 8,192".
std::string cell(const Figure& f) {
  if (f.is_met()) return with_commas(f.largest()) + " =";
  return with_commas(f.largest()) + " not " + with_commas(Figure{f.formula, {}}.largest());
}

}  // namespace

Index Figure::largest() const {
  return measured.empty() ? 0 : *std::ranges::max_element(measured);
}

Figure gather_figure(Communicator& group, const char* what, Index measured, Index formula) {
  return {group.exchange(what, measured), group.exchange(what, formula)};
}

void require_place_for_report(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw Error(Code::file, path + ": expected a file in a folder that exists, given no such folder");
  if (std::filesystem::is_directory(path))
    throw Error(Code::file, path + ": expected a file to write the report to, given a folder");
}

namespace {

/// To a file beside it first, so that there is never half a report.
void write_json(const std::string& path, const nlohmann::ordered_json& j) {
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished);
  file << j.dump(1) << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (!file || error)
    throw Error(Code::file, path + ": expected to write the report, given no writable file");
}

}  // namespace

void write_report(const std::string& path, const Report& r) {
  write_json(path, {{"chapter", r.chapter},
                    {"title", r.title},
                    {"variant", r.variant},
                    {"devices", r.devices},
                    {"layers", r.layers},
                    {"losses", r.losses},
                    {"max_ulp", r.max_ulp},
                    {"bytes", to_json(r.bytes)},
                    {"messages", to_json(r.messages)},
                    {"flops", to_json(r.flops)},
                    {"peak", to_json(r.peak)},
                    {"milliseconds", r.milliseconds},
                    {"reference", r.reference},
                    {"choices", r.choices},
                    {"ok", r.is_good()}});
}

void write_report(const std::string& path, int devices, const std::vector<Outcome>& outcomes) {
  nlohmann::ordered_json j = {{"chapter", "00"},
                              {"title", "collectives"},
                              {"devices", devices},
                              {"ok", std::ranges::all_of(outcomes, &Outcome::is_right)}};
  for (const Outcome& o : outcomes)
    j["collectives"].push_back({{"name", o.name},
                                {"ok", o.is_right},
                                {"bytes", to_json(o.bytes)},
                                {"messages", to_json(o.messages)}});
  write_json(path, j);
}

namespace {

Report report_from(const json& j) {
  Report r;
  r.chapter = j.at("chapter");
  r.title = j.at("title");
  r.variant = j.at("variant");
  r.devices = j.at("devices");
  r.layers = j.at("layers");
  r.losses = j.at("losses").get<std::vector<double>>();
  r.max_ulp = j.at("max_ulp");
  r.bytes = figure_from(j.at("bytes"));
  r.messages = figure_from(j.at("messages"));
  r.flops = figure_from(j.at("flops"));
  r.peak = figure_from(j.at("peak"));
  r.milliseconds = j.at("milliseconds");
  r.reference = j.at("reference");
  r.choices = j.at("choices").get<std::vector<std::vector<Index>>>();
  return r;
}

}  // namespace

Report read_report(const std::string& path) {
  std::ifstream file(path);
  try {
    Report r = report_from(json::parse(file));
    if (!r.losses.empty()) return r;
  } catch (const json::exception&) {  // the one error below
  }
  throw Error(Code::file, path + ": expected a report of a training run, given none or another file");
}

std::string table(const std::vector<Report>& reports) {
  std::string text = fmt::format("{:<3} {:<16} {:<14} {:>6} {:>8} {:>8} {:>4} {:>16} {:>9} {:>16} {:>8}\n",
                                 "", "chapter", "variant", "layers", "loss", "to", "ulp", "bytes sent",
                                 "messages", "bytes held", "ms/step");
  for (const Report& r : reports)
    text += fmt::format("{:<3} {:<16} {:<14} {:>6} {:>8.4f} {:>8.4f} {:>4} {:>16} {:>9} {:>16} {:>8.2f}\n",
                        r.chapter, r.title, r.variant, r.layers, r.losses.front(), r.losses.back(), r.max_ulp,
                        cell(r.bytes), cell(r.messages), cell(r.peak), r.milliseconds);
  return text;
}

}  // namespace shard
