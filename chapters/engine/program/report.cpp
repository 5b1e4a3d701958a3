#include "engine/program/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/basics/printable.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/program/commands.hpp"

namespace shard {

using nlohmann::json;

namespace {

nlohmann::ordered_json to_json(const Figure& f) {
  nlohmann::ordered_json j = {{"measured", f.measured}, {"formula", nullptr}};
  if (f.has_form()) j["formula"] = f.formula;
  if (f.is_booked) j["booked"] = true;
  return j;
}
Figure figure_from(const json& j) {
  Figure f{j.at("measured")};
  if (!j.at("formula").is_null()) f.formula = j.at("formula").get<std::vector<Index>>();
  f.is_booked = j.contains("booked");
  return f;
}

/// The largest number of any device with its mark: "12,288 =" or "12,288 not 8,192".
std::string cell(const Figure& f) {
  const std::string largest = with_commas(f.largest());
  if (!f.has_form()) return largest + " –";
  if (!f.is_met()) return largest + " not " + with_commas(Figure{f.formula}.largest());
  return largest + (f.is_booked ? " booked" : " =");
}

/// Right-aligns a text to a width in characters. UTF-8 may need several bytes for a character.
std::string right(const std::string& text, std::size_t width) {
  const auto characters = static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  return std::string(width > characters ? width - characters : 0, ' ') + text;
}

nlohmann::ordered_json to_json(const std::vector<AxisFigures>& all) {
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  for (const AxisFigures& a : all)
    j[a.axes] = {{"bytes", to_json(a.bytes)}, {"messages", to_json(a.messages)}};
  return j;
}
std::vector<AxisFigures> axes_from(const json& j) {
  std::vector<AxisFigures> all;
  for (const auto& [axes, a] : j.items())
    all.push_back({axes, figure_from(a.at("bytes")), figure_from(a.at("messages"))});
  return all;
}

nlohmann::ordered_json to_json(const std::optional<CurveComparison>& c) {
  if (!c) return nullptr;
  return {
      {"steps", c->steps}, {"largest", c->largest}, {"allowed", c->allowed}, {"wrong_step", c->wrong_step}};
}
std::optional<CurveComparison> curve_from(const json& j) {
  if (j.is_null()) return std::nullopt;
  CurveComparison c;
  c.steps = j.at("steps");
  c.largest = j.at("largest");
  c.allowed = j.at("allowed");
  c.wrong_step = j.at("wrong_step");
  return c;
}

}  // namespace

Index Figure::largest() const {
  return measured.empty() ? 0 : *std::ranges::max_element(measured);
}

Figure gather_figure(Communicator& group, const char* what, Index measured, std::optional<Index> formula) {
  Figure figure{group.exchange(what, measured)};
  if (formula) figure.formula = group.exchange(what, *formula);
  return figure;
}

namespace {

void write_json(const std::string& path, const nlohmann::ordered_json& j) {
  replace_file(path, j.dump(1) + '\n');
}

}  // namespace

void write_report(const std::string& path, const Report& r) {
  write_json(path, {{"chapter", r.chapter},
                    {"title", r.title},
                    {"variant", r.variant},
                    {"workload", r.workload},
                    {"devices", r.devices},
                    {"layers", r.layers},
                    {"losses", r.losses},
                    {"max_ulp", r.max_ulp},
                    {"bytes", to_json(r.bytes)},
                    {"messages", to_json(r.messages)},
                    {"along", to_json(r.along)},
                    {"flops", to_json(r.flops)},
                    {"peak", to_json(r.peak)},
                    {"milliseconds", r.milliseconds},
                    {"decisions", r.decisions},
                    {"curve", to_json(r.curve)},
                    {"ok", r.is_good()}});
}

void write_report(const std::string& path, const std::vector<Outcome>& outcomes, int devices) {
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
  r.workload = j.at("workload");
  r.devices = j.at("devices");
  r.layers = j.at("layers");
  r.losses = j.at("losses").get<std::vector<double>>();
  r.max_ulp = j.at("max_ulp");
  r.bytes = figure_from(j.at("bytes"));
  r.messages = figure_from(j.at("messages"));
  r.along = axes_from(j.at("along"));
  r.flops = figure_from(j.at("flops"));
  r.peak = figure_from(j.at("peak"));
  r.milliseconds = j.at("milliseconds");
  r.curve = curve_from(j.at("curve"));
  return r;
}

}  // namespace

Report read_report(const std::string& path) {
  std::ifstream file(path);
  try {
    Report r = report_from(json::parse(file));
    if (!r.losses.empty()) return r;
  } catch (const json::exception&) {  // ends in the error below
  }
  throw Error(Code::file, path + ": expected a report of a training run, given none or another file");
}

std::string table(const std::vector<Report>& reports) {
  std::size_t width = 14;
  for (const Report& r : reports) width = std::max(width, r.variant.size());
  std::string text = fmt::format("{:<3} {:<16} {:<{}} {:>6} {:>8} {:>8} {:>4} {:>16} {:>9} {:>16} {:>8}\n",
                                 "", "chapter", "variant", width, "layers", "loss", "to", "ulp", "bytes sent",
                                 "messages", "bytes held", "ms/step");
  for (const Report& r : reports) {
    text += fmt::format("{:<3} {:<16} {:<{}} {:>6} {:>8.4f} {:>8.4f} {:>4} {} {} {} {:>8.2f}\n", r.chapter,
                        r.title, r.variant, width, r.layers, r.losses.front(), r.losses.back(),
                        is_far(r.max_ulp) ? "all" : std::to_string(r.max_ulp), right(cell(r.bytes), 16),
                        right(cell(r.messages), 9), right(cell(r.peak), 16), r.milliseconds);
    for (const AxisFigures& a : r.along)
      if (reports.size() == 1 && a.bytes.largest() > 0)
        text += fmt::format("{:<{}} {} {}\n", "    along " + a.axes, width + 51, right(cell(a.bytes), 16),
                            right(cell(a.messages), 9));
  }
  return text;
}

std::string table_notes(const std::vector<Report>& reports) {
  auto any = [&](auto is_so) {
    return std::ranges::any_of(
        reports, [&](const Report& r) { return is_so(r.bytes) || is_so(r.messages) || is_so(r.peak); });
  };
  std::string text =
      "Bytes sent and messages are those of one step, on the device that sends most. Bytes held are the "
      "most\n"
      "that any device holds at a time. \"=\" means that each device's figure equals its closed form.\n";
  if (any([](const Figure& f) { return !f.has_form(); }))
    text += "\"–\" means that the variant has no closed form.\n";
  if (any([](const Figure& f) { return f.is_booked; }))
    text += "\"booked\" means that the backend does not measure what it sends: it books the closed form.\n";
  return text + "ulp is the largest difference of any gradient to the unsharded network's, in exact mode.\n";
}

namespace {

/// How well the first losses agree with the unsharded network's. Each report has its own comparison.
std::string curve_notes(const std::vector<Report>& reports) {
  double largest = 0;
  for (const Report& r : reports)
    if (r.curve) largest = std::max(largest, r.curve->largest);
  return fmt::format("The losses of the first ten steps are the unsharded network's to a relative {:.1e}.\n",
                     largest);
}

}  // namespace

int summarize(const std::vector<std::string>& paths) {
  if (paths.empty()) throw Error(Code::usage, "summary: expected report files, given none");
  std::vector<Report> reports;
  for (const std::string& path : paths) reports.push_back(read_report(path));
  fmt::print("On {} devices. {}{}", reports.front().devices, table_notes(reports), curve_notes(reports));
  bool is_good = true;
  for (const Report& r : reports)
    if (!r.is_good()) {
      fmt::print("not as it should be: {} {}\n", r.chapter, r.variant);
      is_good = false;
    }
  return is_good ? 0 : static_cast<int>(Code::differs);
}

}  // namespace shard
