/// Reports of training runs: figures, their marks, and whether the run is good.

#include "engine/program/report.hpp"

#include "engine/basics/terminal.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"
#include "tests/harness/text_file.hpp"

namespace shard::testing {

namespace {

std::string whole_table(const Report& report) {
  return table(report, 200, true);
}

}  // namespace

TEST_CASE(
    "a table leaves out what has no room, first what stands elsewhere, and times that nobody asked for") {
  Report report;
  report.chapter = "09";
  report.variant = "a-variant-of-many-words";
  report.losses = {1, 0.5};
  report.bytes = report.messages = report.peak = {{1234567}, {1234567}};
  report.along = {{"data", {{1234567}}, {{12}}}};
  report.flops.measured = {1'000'000, 2'000'000};
  report.milliseconds = 2.5;
  CHECK_THAT(table(report, 200, true), contains("09  a-v") && contains("ulp") &&
                                           contains("  ms/step  Gflop/s") && contains("     2.50      1.2"));
  CHECK_THAT(table(report, 200, true), !contains("of peak"));
  report.peak_rate = 4e9;
  CHECK_THAT(table(report, 200, true), contains("Gflop/s  of peak") && contains("1.2   30.0 %"));
  CHECK_THAT(table(report, 200, false), contains("09  a-v") && !contains("ms/step"));
  CHECK_THAT(table(report, 86, false), !contains("09") && contains("ulp") && contains("messages"));
  CHECK_THAT(table(report, 82, false), !contains("ulp") && contains("messages"));
  CHECK_THAT(table(report, 77, false), !contains("messages") && contains("bytes held"));
  for (const int width : {86, 82, 77, 65}) CHECK(width_of_lines(table(report, width, false)) <= width);
}

TEST_CASE("a table says of each figure whether it is its closed form's, and a report's file keeps that") {
  Report report;
  report.losses = {1, 0.5};
  report.peak_rate = 4e9;
  report.bytes = {{4, 12288}, {4, 12288}};
  report.messages = {{3, 2}};
  report.peak = {{8192, 1}, {8192, 1}};
  CHECK(report.is_good());
  CHECK_THAT(whole_table(report), contains("12,288 =") && contains("3 –") && contains("8,192 ="));
  CHECK_THAT(table_notes({report}), contains("the variant has none") && !contains("booked"));
  TextFile file("");
  write_report(file.path(), report);
  CHECK(whole_table(read_report(file.path())) == whole_table(report));
  report.messages.formula = {3, 2};
  report.messages.is_booked = true;
  report.peak.formula = {4096, 1};
  CHECK_FALSE(report.is_good());
  CHECK_THAT(whole_table(report), contains("3 booked") && contains("8,192 not 4,096"));
  CHECK_THAT(table_notes({report}), contains("books the closed form") && !contains("the variant has none"));
  write_report(file.path(), report);
  CHECK(whole_table(read_report(file.path())) == whole_table(report));
}

TEST_CASE("words are wrapped between them, and columns are as wide as their widest cell") {
  CHECK(wrapped("one two  three", 7) == "one two\nthree");
  CHECK(wrapped("one two three", 6, "> ") == "one\n> two\n> three");
  CHECK(wrapped("unbreakable ü", 4) == "unbreakable\nü");
  CHECK(width_of("– ü") == 3);
  CHECK(text_table({{"", "sent"}, {"a", "1 –"}, {"bcd", "12,345 ="}}) ==
        "         sent\na         1 –\nbcd  12,345 =\n");
  CHECK(text_table({{"a", "left", ""}, {"bc", "x", ""}}, 2) == "a   left\nbc  x\n");
}

TEST_CASE("a report is good only if each figure of each device is its form's") {
  Report report;
  report.losses = {1};
  report.bytes = report.messages = report.flops = report.peak = Figure{{4, 8, 4}, {4, 8, 4}};
  CHECK(report.is_good());
  for (Figure Report::*figure : {&Report::bytes, &Report::messages, &Report::flops, &Report::peak}) {
    Report wrong = report;
    (wrong.*figure).measured[2] = 5;  // the largest one is right
    CHECK_FALSE((wrong.*figure).is_met());
    CHECK_FALSE(wrong.is_good());
    CHECK_THAT(wrong_figures(wrong), contains(" on device 2: expected 4, given 5"));
    if (figure != &Report::flops) CHECK_THAT(whole_table(wrong), contains("8 not 8"));
  }
  report.max_ulp = 1;
  CHECK_FALSE(report.is_good());
  CHECK(wrong_figures(report) == "gradients: expected the unsharded network's, given up to 1 ulp from them");
  report.max_ulp = 0;
  report.curve = CurveComparison{.steps = 1, .wrong_step = 1, .expected = 0.5, .given = 0.25};
  CHECK_FALSE(report.is_good());
  CHECK(wrong_figures(report) == "loss of step 1: expected 0.5, given 0.25");
}

TEST_CASE("on a mesh, a report has the figures of each axis along which something is sent") {
  Report report;
  report.losses = {1};
  report.along = {{"data", {{4, 12288}}, {{1, 2}}}, {"tensor", {{0, 0}}, {{0, 0}}}};
  CHECK_THAT(whole_table(report),
             contains("along data ") && contains("12,288 –") && !contains("along tensor"));
  TextFile file("");
  write_report(file.path(), report);
  CHECK(whole_table(read_report(file.path())) == whole_table(report));
}

TEST_CASE("a summary holds each run to its own comparison of loss curves, and to nothing else") {
  Report report;
  report.losses = {1, 0.5, 0.3};
  report.curve = CurveComparison{.steps = 2, .largest = 1e-6, .allowed = 1e-2};
  TextFile first(""), second("");
  write_report(first.path(), report);
  report.losses[2] = 0.4;  // rounding may change it: it is not compared
  write_report(second.path(), report);
  CHECK(summarize({first.path(), second.path()}) == 0);
  report.curve->wrong_step = 2;
  write_report(second.path(), report);
  CHECK(summarize({first.path(), second.path()}) == static_cast<int>(Code::differs));
}

TEST_CASE("figures are gathered from every device, in order") {
  const Figure figure = gather_figure(group(), "test", 10 + group().device_id(), 10);
  REQUIRE(static_cast<int>(figure.measured.size()) == group().num_devices());
  for (int d = 0; d < group().num_devices(); ++d) {
    CHECK(figure.measured[static_cast<std::size_t>(d)] == 10 + d);
    CHECK(figure.formula[static_cast<std::size_t>(d)] == 10);
  }
  CHECK(figure.is_met() == (group().num_devices() == 1));
  CHECK_FALSE(gather_figure(group(), "test", 1).has_form());
}

}  // namespace shard::testing
