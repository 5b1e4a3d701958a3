/// The likely causes of differences.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/program/step/rows_of_step.hpp"
#include "engine/proof/compare.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "engine/workloads/other_versions.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {1, 3});

namespace {

const HostTensor expected{{3, 3}, {1, -2, 3, 4, 5, -6, 7, 0, 9}};

HostTensor each(HostTensor t, const std::function<float(float)>& of) {
  for (float& v : t.values) v = of(v);
  return t;
}

/// The evidence of a square matrix on device 1 of three.
Evidence evidence(HostTensor given) {
  Evidence e;
  e.given = std::move(given);
  e.expected = expected;
  e.num_devices = 3;
  e.place = 1;
  return e;
}

}  // namespace

TEST_CASE("a difference is explained by the first rule that fits") {
  auto cause = [](HostTensor given) { return diagnose(evidence(std::move(given))).cause; };
  CHECK(cause(each(expected, [](float v) { return v == 0 ? NAN : v; })) == Cause::not_finite);
  CHECK(cause(each(expected, [](float) { return 0.0F; })) == Cause::zero);
  CHECK(cause(each(expected, [](float v) { return 0 * v; })) == Cause::times_zero);
  CHECK(cause(each(expected, [](float v) { return -v; })) == Cause::negated);
  CHECK(cause(each(expected, [](float v) { return v / 3; })) == Cause::averaged);
  CHECK(cause(each(expected, [](float v) { return v * (1 / 3.0F); })) == Cause::averaged);
  CHECK(cause(each(expected, [](float v) { return v / 2; })) == Cause::scaled);  // of three devices
  CHECK(cause(each(expected, [](float v) { return 3 * v; })) == Cause::counted_n_times);
  CHECK(cause({{3, 3}, {1, 4, 7, -2, 5, 0, 3, -6, 9}}) == Cause::transposed);
  CHECK(cause({{3, 3}, {8, 8, 8, 1, -2, 3, 4, 5, -6}}) == Cause::shifted);
  CHECK(cause({{3, 3}, {-2, 3, 8, 5, -6, 8, 0, 9, 8}}) == Cause::shifted);
  CHECK(cause({{3, 3}, {1, -2, 3, 4, 5.5F, -6, 7, 0, 9}}) == Cause::unknown);
  CHECK(diagnose(evidence(each(expected, [](float v) { return v / 3; }))).text ==
        "1/3 of it in every element: a mean where a sum is meant?");
  CHECK(diagnose(evidence({{3, 3}, {8, 8, 8, 1, -2, 3, 4, 5, -6}})).text == "it, but 1 row further down");
  CHECK(diagnose(evidence({{3, 3}, {-2, 3, 8, 5, -6, 8, 0, 9, 8}})).text == "it, but 1 column further left");
  CHECK(diagnose(evidence({{3, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1}})).text == "no known cause");
}

TEST_CASE(
    "a difference that comes only where dL/dx is not wanted has that cause, whatever else it looks like") {
  Evidence e = evidence(each(expected, [](float v) { return -v; }));
  CHECK(diagnose(e).cause == Cause::negated);
  e.was_right_with_input_grad = true;
  CHECK(diagnose(e).cause == Cause::only_if_wanted);
}

TEST_CASE("a difference is explained by what the tensor was mistaken for, if that is known") {
  const HostTensor before{{3, 3}, {2, 2, 2, 0, 1, 2, 3, 4, 5}};
  const HostTensor one{{3, 3}, {1, 0, 0, 0, 5, 0, 0, 0, 9}}, rest{{3, 3}, {0, -2, 3, 4, 0, -6, 7, 0, 0}};
  const HostTensor none{{3, 3}, std::vector<float>(9)};
  auto diagnosis = [&](const HostTensor& given) {
    Evidence e = evidence(given);
    e.others = {{Diagnosis(Cause::previous_step), before}};
    e.addends = {{"0", 1, none}, {"1", 1, one}, {"2", 1, rest}};
    e.slices = {{{3, 3}, {6, 6, 6, 6, 6, 6, 6, 6, 6}}, expected, {{3, 3}, {9, 8, 7, 6, 5, 4, 3, 2, 1}}};
    return diagnose(e);
  };
  CHECK(diagnosis(before).cause == Cause::previous_step);
  CHECK(diagnosis(one).cause == Cause::one_addend);
  CHECK(diagnosis(one).text == "device 1's addend alone: a reduction, or the others' addends, left out?");
  CHECK(diagnosis(rest).text == "device 2's addend alone: a reduction, or the others' addends, left out?");
  CHECK(diagnosis(each(one, [](float v) { return 2 * v; })).cause == Cause::unknown);
  CHECK(diagnosis({{3, 3}, {2, -2, 3, 4, 10, -6, 7, 0, 18}}).text == "device 1's addend is in the sum twice");
  CHECK(diagnosis({{3, 3}, {9, 8, 7, 6, 5, 4, 3, 2, 1}}).text == "device 2's slice, not device 1's");
  Evidence e = evidence(rest);  // of three addends, one is missing
  const HostTensor half = each(rest, [](float v) { return v / 2; });
  e.addends = {{"0", 2, one}, {"1", 1, half}, {"2", 1, half}};
  CHECK(diagnose(e).text == "device 0's addend is missing from the sum");
  e.given = {{3, 3}, {1, -4, 6, 8, 5, -12, 14, 0, 9}};  // one and twice the rest
  CHECK(diagnose(e).cause == Cause::averaged_over_own_rows);
  e.addends[0].rows = 1;
  CHECK(diagnose(e).cause == Cause::unknown);
}

TEST_CASE("what micro-batches add is named: alone, missing, twice, divided again and again") {
  const HostTensor first{{3, 3}, {1, 0, 2, 0, 5, 0, 3, 0, 9}}, second{{3, 3}, {0, -2, 1, 4, 0, -6, 7, 1, 0}},
      last{{3, 3}, {2, 1, 0, 3, 1, 1, 0, 4, 6}};
  auto sum = [&](float a, float b, float c) {
    HostTensor all = first;
    for (std::size_t i = 0; i < 9; ++i)
      all.values[i] = a * first.values[i] + b * second.values[i] + c * last.values[i];
    return all;
  };
  for (const bool each : {false, true})
    for (const auto& [given, text] :
         {std::pair{last, "what the last micro-batch{} adds: the others overwritten, or left out?"},
          {second, "what the 2nd micro-batch{} adds: the others overwritten, or left out?"},
          {sum(0, 1, 1), "what the first micro-batch{} adds is missing from the sum"},
          {sum(1, 2, 1), "what the 2nd micro-batch{} adds is in the sum twice"},
          {sum(1 / 27.0F, 1 / 9.0F, 1 / 3.0F),
           "sums divided by 3 after each micro-batch, the first ones again and again?"},
          {sum(1, 1 / 3.0F, 1 / 9.0F),
           "sums divided by 3 after each micro-batch, the first ones again and again?"},
          {sum(1 / 3.0F, 1 / 3.0F, 1 / 3.0F), "1/3 of it in every element: a mean where a sum is meant?"},
          {sum(4, 2, 1),
           "sums over the devices made after each micro-batch, the first ones again and again?"},
          {sum(1, 3, 1), "no known cause"}}) {
      Evidence e{.given = given, .expected = sum(1, 1, 1), .num_devices = 2};
      e.pieces = {{"first", 5, first}, {"2nd", 4, second}, {"last", 4, last}};
      if (each) e.addends = {{"0", 7, sum(1, 0.5F, 0)}, {"1", 6, sum(0, 0.5F, 1)}};
      CHECK(diagnose(e).text == fmt::format(fmt::runtime(text), each ? " of each device" : ""));
    }
}

TEST_CASE("a rule speaks only of more numbers than it can choose") {
  Evidence e{.given = {{2}, {1, 0}}, .expected = {{2}, {3, 0}}, .num_devices = 3};
  e.addends = {{"0", 1, {{2}, {1, 0}}}, {"1", 1, {{2}, {2, 0}}}};
  e.others = {{Diagnosis(Cause::previous_step), e.given}};
  CHECK(diagnose(e).cause == Cause::unknown);  // 1/3, an addend, and the step before: each fits one element
  e.given.values[1] = 1, e.expected.values[1] = 3;
  e.others = {{Diagnosis(Cause::previous_step), e.given}};
  CHECK(diagnose(e).cause == Cause::previous_step);
}

TEST_CASE(
    "another slice is named where slices have different lengths, and losses that are off by a logarithm") {
  Evidence e{
      .given = {{4, 1}, {1, 2, 3, 4}}, .expected = {{4, 1}, {6, 7, 8, 9}}, .num_devices = 3, .place = 1};
  e.slices = {{{4, 1}, {1, 2, 3, 4}}, e.expected, {{3, 1}, {10, 11, 12}}};
  CHECK(diagnose(e).text == "device 0's slice, not device 1's");
  e.given.values = {10, 11, 12, 5};
  CHECK(diagnose(e).text == "device 2's slice, not device 1's");
  e.slices[2] = {{2, 1}, {10, 11}};  // no more than half
  CHECK(diagnose(e).cause == Cause::unknown);

  e = {.given = {{4, 1}, {3.625F, 0, 4.5F, 2.625F}}, .expected = {{4, 1}, {2, 0, 3, 1}}, .num_devices = 3};
  CHECK(diagnose(e).cause == Cause::unknown);
  e.is_log_loss = true;  // log2(3) is 1.58, and losses are multiples of 1/8
  CHECK(diagnose(e).text ==
        "log 3 more than it in every element: a softmax's sum that each device has, summed again?");
  std::swap(e.given, e.expected);
  CHECK(diagnose(e).cause == Cause::log_less);
  e.given.values[0] += 0.5F;
  CHECK(diagnose(e).cause == Cause::unknown);
}

TEST_CASE("the addend of a device may be 0: then 0 is that addend") {
  Evidence e{.given = {{3}, {0, 0, 0}}, .expected = {{3}, {1, -2, 3}}, .num_devices = 2};
  CHECK(diagnose(e).cause == Cause::zero);
  e.addends = {{"1", 2, e.given}, {"0", 2, e.expected}};
  CHECK(diagnose(e).text == "device 1's addend alone: a reduction, or the others' addends, left out?");
}

TEST_CASE("what a step has done says which rows a gradient may be a sum over") {
  const int n = group().num_devices(), me = group().device_id();
  if (n == 1) return;
  const ExactProblem problem = make_exact_problem({2, 5, 7}, 9, 3);
  const Solution expected = solve(problem, group());
  const HostTensor& output = expected.at("output");
  const std::string name = "layer_0/weights";
  auto rows = [&](Range r) {
    return OutputRows{
        r.begin, {{r.size(), 5}, {output.values.begin() + 5 * r.begin, output.values.begin() + 5 * r.end}}};
  };
  auto of = [](const std::vector<RowsAlone>& all) {
    std::vector<std::string> names;
    for (const RowsAlone& alone : all) names.push_back(alone.of);
    return names;
  };
  using Names = std::vector<std::string>;
  auto check = [&](const std::vector<OutputRows>& seen, bool is_owned, bool moves, const Names& devices,
                   const Names& pieces) {
    std::map<std::string, Placed> gradients;
    const HostTensor& dw = expected.at(name);
    if (is_owned)
      gradients.insert_or_assign(name, Owned(group(), me == 0 ? to_device(dw) : Tensor(), dw.shape, 0));
    else
      gradients.insert_or_assign(name, Replicated(group(), to_device(dw)));
    RowsOfStep step(group(), problem, seen, gradients, expected, moves);
    CHECK(of(step.by_device(name)) == devices);
    CHECK(of(step.by_piece(name)) == pieces);
    CHECK(step.by_device(Gradients::input_grad).empty());
  };
  const Range mine = part(9, n, me), whole = {0, 9};
  Names by_me = {std::to_string(group().members()[static_cast<std::size_t>(me)])};
  for (int d = 0; d < n; ++d)
    if (d != me) by_me.push_back(std::to_string(group().members()[static_cast<std::size_t>(d)]));
  const std::vector<OutputRows> nothing;
  check({rows(mine)}, false, false, by_me, {});  // data parallel
  check({rows(mine)}, true, false, {}, {});      // an expert has seen the rows of all devices
  check({rows({mine.begin, mine.begin + 2}), rows({mine.begin + 2, mine.end})}, false, false, by_me,
        {"first", "last"});
  check({rows(whole)}, false, false, {}, {});    // tensor parallel
  check({rows(whole)}, false, true, by_me, {});  // the same, with rows that are divided in between
  const bool is_last = me == n - 1;
  check(is_last ? std::vector{rows({0, 3}), rows({3, 7}), rows({7, 9})} : nothing, true, false, {},
        {"first", "2nd", "last"});                                                          // a pipeline
  check(is_last ? std::vector{rows({0, 3}), rows({5, 9})} : nothing, true, false, {}, {});  // runs of tokens
  std::vector<OutputRows> wrong = {rows(mine)};
  if (is_last) wrong[0].rows.values[0] += 1;
  check(wrong, false, false, {}, {});  // its gradients are wrong for the reason that its output is
}

TEST_CASE("each mistake of an mlp has its name, and right results have none") {
  for (const Index layers : {Index{1}, Index{2}, Index{3}, Index{4}, Index{6}}) {
    const ExactProblem problem = make_exact_problem({layers, 5, 7}, 9, 3);
    const Solution expected = solve(problem, group());
    const std::vector<OtherResults> others = other_versions(problem, group());
    CHECK(others.size() > 8);
    for (const OtherResults& made : others)
      for (const auto& [name, values] : made.results) {
        if (values.values == expected.at(name).values) continue;
        INFO(layers << " layers, " << name << ": " << made.says.text);
        Evidence e{.given = values, .expected = expected.at(name)};
        for (const OtherResults& other : others) e.others.push_back({other.says, other.results.at(name)});
        const Diagnosis found = diagnose(e);
        const auto same = std::ranges::find_if(others, [&](const OtherResults& other) {
          return other.says.text == found.text && other.results.at(name).values == values.values;
        });
        CHECK((same != others.end() || found.cause == Cause::zero));
      }
  }
}

TEST_CASE("what explains most of a device's results is named of each of them") {
  // Where one weight is not halved, the output is twice what is expected, whichever weight it is.
  const ExactProblem before = make_exact_problem({2, 5, 7}, 9, 3), now = with_halved_weights(before);
  ExactProblem stale = now;
  stale.weights.at("layer_1/weights") = before.weights.at("layer_1/weights");
  const Solution given = solve(stale, group());
  std::map<std::string, Placed> gradients;
  for (const auto& [name, values] : given)
    if (name != "output") gradients.insert_or_assign(name, Replicated(group(), to_device(values)));
  const Background background{.others = [&] { return stale_versions(before, now, 1, 0, group()); }};
  for (const Comparison& c :
       compare_all(group(), {{0, given.at("output")}}, gradients, solve(now, group()), background))
    if (!c.is_equal())
      CHECK_THAT(c.first_difference,
                 contains("what comes out of layer_1/weights of the step before: not updated?"));
}

TEST_CASE("a result that is left out, or has another name, is a difference") {
  const Solution expected = {{"a", {{1, 1}, {1}}}, {"b", {{1, 1}, {2}}}};
  std::map<std::string, Placed> gradients;
  gradients.insert_or_assign("a", Replicated(group(), to_device(expected.at("a"))));
  gradients.insert_or_assign("c", Replicated(group(), to_device(expected.at("b"))));
  const std::vector<Comparison> all = compare_all(group(), {}, gradients, expected);
  REQUIRE(all.size() == 3);
  CHECK_THAT(all[1].first_difference,
             contains("b on device ") && contains(": expected a result of this name, given none"));
  CHECK_THAT(all[0].first_difference,
             contains("c on device ") && contains(": no such result: expected a, b"));
  CHECK(all[2].is_equal());
}

TEST_CASE("a factor that all elements share, and a rounding to 16 bits, are named; small noise is neither") {
  Evidence e;
  e.expected = {{2, 3}, {1001, 2003, -301, 0.1F, 0, 7}};
  auto cause = [&](auto f) {
    e.given = each(e.expected, f);
    return diagnose(e).text;
  };
  CHECK_THAT(cause([](float v) { return 0.75F * v; }),
             contains("0.75 times it in every element: a wrong scale?"));
  CHECK_THAT(cause([](float v) {
               return std::bit_cast<float>((std::bit_cast<std::uint32_t>(v) + 0x7fffU) & 0xffff0000U);
             }),
             contains("what bfloat16 has of it: a conversion to 16 bits?"));
  CHECK_THAT(cause([](float v) { return v * (v > 0 ? 1.0001F : 0.9999F); }), contains("no known cause"));
  CHECK_THAT(cause([](float v) { return v + 1e-4F; }), contains("no known cause"));
  CHECK_THAT(cause([](float v) { return v == 7 ? 14 : v; }), contains("no known cause"));
  e.expected = {{1, 3}, {2, 0, 0}};  // one element has any factor
  CHECK_THAT(cause([](float v) { return 0.7F * v; }), contains("no known cause"));
}

TEST_CASE("comparisons say where and why, and keep the largest difference beside the first") {
  const HostTensor wanted{{2, 2}, {1, 2, 3, -0.0F}};
  CHECK(compare("w", {{2, 2}, {1, 2, 3, 0}}, wanted).is_equal());
  Comparison c = compare("w", {{2, 2}, {1, 2, -3, 0}}, wanted, 1, 0, 10);
  CHECK_THAT(c.first_difference, contains("w on device "));
  CHECK_THAT(c.first_difference, contains(" at (11, 0): expected 3, given -3: no known cause"));
  CHECK(c.relative == 2);
  CHECK(compare("w", {{2, 2}, {1, 2, std::nextafter(3.0F, 4.0F), 0}}, wanted).max_ulp == 1);
  CHECK_THAT(compare("w", {{2, 2}, {1, 2, std::nextafter(3.0F, 4.0F), 0}}, wanted).first_difference,
             contains(" at (1, 0): expected 3, given 3"));
  CHECK_FALSE(compare("w", {{2, 2}, {1, 2, 3, 1}}, wanted).is_equal());
  CHECK_FALSE(compare("w", {{2, 2}, {1, 2, NAN, 0}}, wanted).is_equal());
  CHECK(compare("w", {{4}, {1, 2, 3, 0}}, wanted).cause == Cause::unknown);
  CHECK_FALSE(compare("w", {{4}, {1, 2, 3, 0}}, wanted).is_equal());
  CHECK(compare("w", {{3, 2}, {}}, {{2, 3}, {}}).cause == Cause::reversed_shape);
  CHECK(ulp_distance(-0x1p-149F, 0x1p-149F) == 2);

  // The first difference is the smallest, the largest comes later, and a middle one comes last.
  const float next = std::nextafter(1.0F, 2.0F);
  c = compare("w", {{2, 2}, {next, 8, 3 + 0x1p-21F, 0}}, wanted);
  CHECK_THAT(c.first_difference, contains(" at (0, 0): expected 1, given 1"));
  CHECK(c.max_ulp == ulp_distance(8, 2));
  CHECK(c.relative == 2);  // 6 of 3
}

TEST_CASE("a placed result is explained by the other devices' slices, the step before, and the addends") {
  const int devices = group().num_devices(), me = group().device_id();
  if (devices == 1) return;
  HostTensor whole{{2 * devices, 2}, {}}, before = whole;
  for (Index i = 0; i < num_elements(whole.shape); ++i) {
    whole.values.push_back(static_cast<float>(1 + i * i));
    before.values.push_back(static_cast<float>(3 + i));
  }
  const WholeResults a_quarter{{"w", each(whole, [&](float v) { return v / 4; })}};
  const Background background{
      .addends =
          [&](const std::string&) {
            return std::vector<RowsAlone>{{"0", 1, &a_quarter}, {"1", 1, &a_quarter}};
          },
      .others =
          [&] {
            return std::vector<OtherResults>{{Diagnosis(Cause::previous_step), {{"w", before}}}};
          }};
  auto cause = [&](const HostTensor& from, int slice_of) {
    Tensor mine = slice(to_device(from), 0, 2 * slice_of, 2 * slice_of + 2);
    std::map<std::string, Placed> given;
    given.insert_or_assign("w", Sharded<0>(group(), std::move(mine), whole.shape, 2 * me));
    return compare_all(group(), {}, given, {{"w", whole}}, background).at(0).cause;
  };
  CHECK(cause(whole, (me + 1) % devices) == Cause::other_slice);
  CHECK(cause(before, me) == Cause::previous_step);
  CHECK(cause(each(whole, [](float v) { return v / 4; }), me) == Cause::one_addend);
}

}  // namespace shard::testing
