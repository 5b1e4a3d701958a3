#include "engine/program/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/basics/printable.hpp"
#include "engine/basics/terminal.hpp"
#include "engine/files/regular_file.hpp"

namespace shard {

using nlohmann::json;

void to_json(json& j, const Figure& f) {
  j = {{"measured", f.measured}, {"formula", nullptr}};
  if (f.has_form()) j["formula"] = f.formula;
  if (f.is_booked) j["booked"] = true;
}
void from_json(const json& j, Figure& f) {
  f = {j.at("measured").get<std::vector<Index>>()};
  if (!j.at("formula").is_null()) f.formula = j.at("formula").get<std::vector<Index>>();
  f.is_booked = j.contains("booked");
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AxisFigures, axes, bytes, messages)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CurveComparison, steps, largest, allowed, wrong_step, expected, given)
// Without the comparison of the curve, which there may not be, and the library of products and its peak, which older ones
// lack.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, chapter, title, variant, workload, devices, layers, losses,
                                   max_ulp, bytes, messages, along, flops, peak, milliseconds, decisions)

namespace {

/// The largest number of any device with its mark: "12,288 =" or "12,288 not 8,192".
std::string cell(const Figure& f) {
  const std::string largest = with_commas(f.largest());
  if (!f.has_form()) return largest + " –";
  if (!f.is_met()) return largest + " not " + with_commas(Figure{f.formula}.largest());
  return largest + (f.is_booked ? " booked" : " =");
}

}  // namespace

void write_report(const std::string& path, const Report& r) {
  json j = r;
  j["curve"] = r.curve ? json(*r.curve) : json();
  j["products"] = r.products;
  j["peak_rate"] = r.peak_rate;
  j["ok"] = r.is_good();
  replace_file(path, j.dump(1) + '\n');
}

void write_report(const std::string& path, const std::string& chapter, const std::string& title,
                  const std::vector<Outcome>& outcomes, int devices) {
  json j = {{"chapter", chapter},
            {"title", title},
            {"devices", devices},
            {"ok", std::ranges::all_of(outcomes, &Outcome::is_right)}};
  for (const Outcome& o : outcomes)
    j["collectives"].push_back(
        {{"name", o.name}, {"ok", o.is_right}, {"bytes", o.bytes}, {"messages", o.messages}});
  replace_file(path, j.dump(1) + '\n');
}

Report read_report(const std::string& path) {
  std::ifstream file(path);
  try {
    const json j = json::parse(file);
    Report r = j.get<Report>();
    r.products = j.value("products", "");
    r.peak_rate = j.value("peak_rate", 0.0);
    if (!j.at("curve").is_null()) r.curve = j.at("curve").get<CurveComparison>();
    if (!r.losses.empty()) return r;
  } catch (const json::exception&) {  // ends in the error below
  }
  throw Error(Code::file, path + ": expected a report of a training run, given none or another file");
}

std::string table(const Report& r, int width, bool with_times) {
  using Row = std::vector<std::string>;
  // What is left out first where the table is too wide stands elsewhere, too; messages do not.
  std::vector<std::string> dropped_first = {"messages", "ulp", ""};
  Row titles = {"", "variant", "loss", "to", "ulp", "bytes sent", "messages", "bytes held"};
  std::vector<Row> rows = {
      {r.chapter, r.variant, fmt::format("{:.4f}", r.losses.front()), fmt::format("{:.4f}", r.losses.back()),
       is_far(r.max_ulp) ? "all" : std::to_string(r.max_ulp), cell(r.bytes), cell(r.messages), cell(r.peak)}};
  for (const AxisFigures& a : r.along)
    if (a.bytes.largest() > 0)
      rows.push_back({"", "along " + a.axes, "", "", "", cell(a.bytes), cell(a.messages), ""});
  if (with_times) {
    // The rate of all devices together; those that wait for one another have a lower one.
    const double flops = std::reduce(r.flops.measured.begin(), r.flops.measured.end(), 0.0);
    const double rate = flops / r.milliseconds * 1e3;
    titles.insert(titles.end(), {"ms/step", "Gflop/s"});
    rows.front().insert(rows.front().end(),
                        {fmt::format("{:.2f}", r.milliseconds), fmt::format("{:.1f}", rate / 1e9)});
    if (r.peak_rate > 0) {
      titles.push_back("of peak");
      rows.front().push_back(fmt::format("{:.1f} %", 100 * rate / r.peak_rate));
    }
    for (Row& row : rows) row.resize(titles.size());
  }
  rows.insert(rows.begin(), titles);
  std::string text = text_table(rows, 2);
  while (!dropped_first.empty() && width_of_lines(text) > width) {
    const auto column = std::ranges::find(rows.front(), dropped_first.back()) - rows.front().begin();
    dropped_first.pop_back();
    for (Row& row : rows) row.erase(row.begin() + column);
    text = text_table(rows, rows.front().front().empty() ? 2 : 1);
  }
  return text;
}

std::string wrong_figures(const Report& r) {
  std::vector<std::string> wrong;
  auto add = [&](const std::string& what, const std::string& expected, const std::string& given) {
    wrong.push_back(fmt::format("{}: expected {}, given {}", what, expected, given));
  };
  if (r.max_ulp != 0)
    add("gradients", "the unsharded network's",
        is_far(r.max_ulp) ? "others" : fmt::format("up to {} ulp from them", r.max_ulp));
  if (r.curve && !r.curve->is_good())
    add(fmt::format("loss of step {}", r.curve->wrong_step), fmt::format("{:.7g}", r.curve->expected),
        fmt::format("{:.7g}", r.curve->given));
  for (const auto& [what, f] : {std::pair{"bytes sent", &r.bytes}, std::pair{"messages", &r.messages},
                                std::pair{"operations", &r.flops}, std::pair{"bytes held", &r.peak}}) {
    if (f->is_met()) continue;
    const auto [given, expected] = std::ranges::mismatch(f->measured, f->formula);
    if (given == f->measured.end() || expected == f->formula.end())
      add(what, "two figures for each device", "one");
    else
      add(fmt::format("{} on device {}", what, given - f->measured.begin()), with_commas(*expected),
          with_commas(*given));
  }
  return fmt::format("{}", fmt::join(wrong, "; "));
}

std::string table_notes(const std::vector<Report>& reports) {
  auto any = [&](auto is_so) {
    return std::ranges::any_of(
        reports, [&](const Report& r) { return is_so(r.bytes) || is_so(r.messages) || is_so(r.peak); });
  };
  std::string text =
      "Bytes sent and messages are those of one step, on the device that sends most. Bytes held are the most "
      "that any "
      "device holds at a time. \"=\" means that each device's figure equals its closed form";
  if (any([](const Figure& f) { return !f.has_form(); })) text += ", \"–\" that the variant has none";
  if (any([](const Figure& f) { return f.is_booked; }))
    text += ", \"booked\" that the backend does not measure what it sends and books the closed form";
  return text + ". ulp is the largest difference of any gradient to the unsharded network's, in exact mode.";
}

namespace {

/// How well the first losses agree with the unsharded network's. Each report has its own comparison.
std::string curve_notes(const std::vector<Report>& reports) {
  double largest = 0;
  for (const Report& r : reports)
    if (r.curve) largest = std::max(largest, r.curve->largest);
  return fmt::format("The losses of the first ten steps are the unsharded network's, to a relative {:.1e}.",
                     largest);
}

}  // namespace

int summarize(const std::vector<std::string>& paths) {
  if (paths.empty()) throw Error(Code::usage, "summary: expected report files, given none");
  std::vector<Report> reports;
  for (const std::string& path : paths) reports.push_back(read_report(path));
  fmt::print("{}\n", wrapped(fmt::format("On {} devices. {} {}", reports.front().devices,
                                         table_notes(reports), curve_notes(reports)),
                             output_columns()));
  if (const std::string& products = reports.front().products; !products.empty())
    fmt::print("{}\n", wrapped(fmt::format("Products by {}.", products), output_columns()));
  bool is_good = true;
  for (const Report& r : reports)
    if (!r.is_good()) {
      fmt::print("not as it should be: {} {}: {}\n", r.chapter, r.variant, wrong_figures(r));
      is_good = false;
    }
  return is_good ? 0 : static_cast<int>(Code::differs);
}

}  // namespace shard
