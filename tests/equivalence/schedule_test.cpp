// Chapter 04's schedules: checked, timed, and with mistakes.

#include <algorithm>
#include <cmath>

#include "04_pipeline/stages.hpp"
#include "engine/schedules/checker.hpp"
#include "engine/schedules/cuts.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/schedules/timeline.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"
#include "tests/harness/refused.hpp"

namespace shard::testing {

using namespace pipeline;

namespace {

/// A schedule, and the sizes that it was made for.
struct Known {
  std::string name;
  int devices;
  int virtual_stages;
  Index micro_batches;
  Schedule schedule;
};

Known known(const std::string& name, int k, int v, Index m, const Work& work) {
  return {name, k, v, m, with_messages(k * v, m, work)};
}

/// Calls check(schedule) for many numbers of devices, of stages on a device, and of micro-batches.
template <class Check>
void for_each_schedule(const Check& check) {
  for (int k = 1; k <= 8; ++k)
    for (Index m : {1, 2, 3, 4, 5, 7, 8, 13, 16, 24}) {
      std::vector<Known> all = {known("naive", k, 1, m, naive(k, m)), known("gpipe", k, 1, m, gpipe(k, m)),
                                known("1f1b", k, 1, m, one_forward_one_backward(k, m)),
                                known("zero-bubble", k, 1, m, zero_bubble(k, m))};
      for (int v = 1; v <= 4; ++v) all.push_back(known("interleaved", k, v, m, interleaved(k, v, m)));
      for (const Known& s : all) {
        CAPTURE(s.name, k, s.virtual_stages, m);
        check(s);
      }
    }
}

std::string complaint(const Schedule& schedule) {
  return refusal([&] { check(schedule); }).message;
}

}  // namespace

TEST_CASE("every schedule is proved") {
  for_each_schedule([](const Known& s) { CHECK(complaint(s.schedule) == ""); });
}

TEST_CASE("what a pipeline takes must be there, and is there once") {
  const Message gradient{Flow::gradient, 1, 0};
  std::map<Message, int> messages = {{gradient, 7}};
  CHECK(taken(messages, gradient) == 7);
  check_refused(
      [&] { taken(messages, gradient); },
      "pipeline: expected the gradient of micro-batch 1 for stage 0, received or computed, given none");
  std::map<std::pair<Index, int>, int> kept = {{{1, 2}, 8}};
  CHECK(taken(kept, {1, 2}) == 8);
  check_refused(
      [&] {
        taken(kept, {0, 2});
      },
      "pipeline: expected what stage 2 kept of micro-batch 0, given none");
}

TEST_CASE("idle shares are those of the literature, messages and waits included") {
  for_each_schedule([](const Known& s) {
    const auto k = static_cast<double>(s.devices);
    const auto m = static_cast<double>(s.micro_batches);
    const auto v = static_cast<double>(s.virtual_stages);
    for (const Durations& durations : {Durations{}, Durations{3, 3, 2}, Durations{2, 3, 1}}) {
      const Timeline timeline = simulate(s.schedule, durations);
      const double idle = timeline.idle_share();
      if (s.name == "naive") CHECK(std::abs(idle - (k - 1) / k) < 1e-12);
      if (s.name == "gpipe" || s.name == "1f1b") CHECK(std::abs(idle - (k - 1) / (m + k - 1)) < 1e-12);
      if (s.name == "interleaved" && s.micro_batches % s.devices == 0)
        CHECK(std::abs(idle - (k - 1) / (v * m + k - 1)) < 1e-12);
      if (s.name == "zero-bubble" && s.micro_batches >= s.devices) {
        const Index gaps =
            (s.devices - 1) * (durations.forward + durations.backward_input - durations.backward_weights);
        for (int d = 0; d < s.devices; ++d) CHECK(timeline.length - timeline.busy(d) == gaps);
      }
    }
  });
}

TEST_CASE("micro-batches held at most are as many as each schedule promises") {
  for_each_schedule([](const Known& s) {
    for (int d = 0; d < s.devices; ++d) {
      CAPTURE(d);
      const Index held = most_held(s.schedule, d);
      const Index m = s.micro_batches;
      if (s.name == "naive") CHECK(held == 1);
      if (s.name == "gpipe") CHECK(held == m);
      if (s.name == "1f1b") CHECK(held == std::min<Index>(m, s.devices - d));
      if (s.name == "zero-bubble") CHECK(held == std::min<Index>(m, s.devices));
      const Index promised = 2 * (s.devices - d - 1) + (s.virtual_stages - 1) * s.devices + 1;
      if (s.name == "interleaved") CHECK(held <= promised);
      if (s.name == "interleaved" && m % s.devices == 0)
        CHECK(held == std::min(promised, m * s.virtual_stages));
    }
  });
}

TEST_CASE("1F1B with sends that block would wait in a circle, and the circle is shown; GPipe would not") {
  const Schedule schedule = with_messages(4, 8, one_forward_one_backward(4, 8));
  CHECK(find_cycle(schedule, Sends::posted).empty());
  const std::vector<Stuck> cycle = find_cycle(schedule, Sends::blocking);
  CHECK(cycle.size() == 2);
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    CHECK(cycle[i].waits_for == cycle[(i + 1) % cycle.size()].device);
    CHECK(cycle[i].action.kind == Action::Kind::post_send);
  }
  CHECK_THAT(to_string(cycle), contains("waits for device"));
  CHECK(find_cycle(with_messages(4, 8, gpipe(4, 8)), Sends::blocking).empty());
  CHECK(find_cycle(with_messages(4, 8, naive(4, 8)), Sends::blocking).empty());
}

TEST_CASE("a schedule with any one action left out, doubled or moved to another device is refused") {
  for (const Work& work :
       {gpipe(3, 4), one_forward_one_backward(3, 4), zero_bubble(3, 4), interleaved(3, 2, 4)}) {
    const int stages = work == interleaved(3, 2, 4) ? 6 : 3;
    const Schedule right = with_messages(stages, 4, work);
    for (std::size_t d = 0; d < 3; ++d)
      for (std::size_t i = 0; i < right.actions[d].size(); ++i) {
        CAPTURE(d, i, to_string(right.actions[d][i]));
        const auto at = static_cast<std::ptrdiff_t>(i);
        Schedule wrong = right;
        wrong.actions[d].erase(wrong.actions[d].begin() + at);
        CHECK(complaint(wrong) != "");
        wrong = right;
        wrong.actions[d].insert(wrong.actions[d].begin() + at, right.actions[d][i]);
        CHECK(complaint(wrong) != "");
        wrong = right;
        wrong.actions[d].erase(wrong.actions[d].begin() + at);
        wrong.actions[(d + 1) % 3].push_back(right.actions[d][i]);
        CHECK(complaint(wrong) != "");
      }
  }
}

TEST_CASE("a micro-batch that is missing, and one that is not there, are refused by their numbers") {
  Work work = gpipe(1, 2);
  work[0].pop_back();
  CHECK_THAT(
      complaint(with_messages(1, 2, work)),
      contains("expected each action once, given none: backward for the input of micro-batch 0, stage 0"));
  work = gpipe(1, 2);
  work[0].push_back({Action::Kind::forward, 2, 0});
  CHECK_THAT(complaint(with_messages(1, 2, work)),
             contains("given forward of micro-batch 2, stage 0 on device 0"));
}

TEST_CASE("a backward before its forward, a cycle, and receives in another order are refused") {
  Work work = naive(2, 1);
  std::swap(work[0][0], work[0][1]);
  CHECK_THAT(complaint(with_messages(2, 1, work)), contains("a forward before it"));
  work = gpipe(2, 2);
  std::swap(work[1][0], work[1][2]);  // the last stage's backward comes first
  CHECK_THAT(complaint(with_messages(2, 2, work)), contains("a forward before it"));
  Schedule schedule = with_messages(2, 2, gpipe(2, 2));
  std::vector<Action>& mine = schedule.actions[1];
  std::vector<std::size_t> receives;
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine[i].kind == Action::Kind::post_receive) receives.push_back(i);
  std::swap(mine[receives[0]], mine[receives[1]]);
  CHECK(complaint(schedule) != "");

  // Each of two devices waits for the other's message before it sends its own.
  Schedule circle{2, 4, 1, {}};
  auto post = [](Action::Kind kind, int stage) { return Action{kind, 0, stage}; };
  circle.actions = {{post(Action::Kind::post_receive, 2), post(Action::Kind::wait_received, 2),
                     post(Action::Kind::post_send, 1), post(Action::Kind::wait_sent, 1)},
                    {post(Action::Kind::post_receive, 1), post(Action::Kind::wait_received, 1),
                     post(Action::Kind::post_send, 2), post(Action::Kind::wait_sent, 2)}};
  const std::vector<Stuck> cycle = find_cycle(circle, Sends::posted);
  CHECK(cycle.size() == 2);
}

TEST_CASE("a backward before its gradient has come, and a message to oneself, are refused") {
  // Stage 0's backward comes after its forward, but before the wait for its gradient.
  Schedule schedule = with_messages(2, 1, gpipe(2, 1));
  std::vector<Action>& mine = schedule.actions[0];
  const auto wait = std::ranges::find(mine, Action::Kind::wait_received, &Action::kind);
  const auto backward = std::ranges::find(mine, Action::Kind::backward, &Action::kind);
  REQUIRE((wait != mine.end() && backward != mine.end() && wait < backward));
  std::rotate(wait, backward, backward + 1);
  CHECK_THAT(complaint(schedule), contains("its gradient before it"));

  // Two stages on one device: what stage 1 reads is there already.
  schedule = with_messages(2, 1, interleaved(1, 2, 1));
  CHECK(complaint(schedule) == "");
  std::vector<Action>& all = schedule.actions[0];
  all.insert(all.begin() + 1, Action{Action::Kind::post_send, 0, 1});
  CHECK_THAT(complaint(schedule), contains("a message to another device"));
}

TEST_CASE("a sender waits in the timeline until its receiver posts") {
  // Device 0 sends after a forward of 1 slot, and waits. Device 1 posts its receive after a backward of 5 slots.
  Schedule schedule{2, 4, 1, {}};
  auto of = [](Action::Kind kind, int stage) { return Action{kind, 0, stage}; };
  schedule.actions = {{of(Action::Kind::forward, 0), of(Action::Kind::post_send, 1),
                       of(Action::Kind::wait_sent, 1), of(Action::Kind::forward, 2)},
                      {of(Action::Kind::backward_weights, 3), of(Action::Kind::post_receive, 1),
                       of(Action::Kind::wait_received, 1), of(Action::Kind::forward, 1)}};
  const Timeline timeline = simulate(schedule, Durations{1, 1, 5});
  REQUIRE(timeline.work[0].size() == 2);
  CHECK(timeline.work[0][0].end == 1);
  CHECK(timeline.work[0][1].begin == 5);
  CHECK(timeline.work[1][1].begin == 5);
  CHECK(timeline.length == 6);
}

TEST_CASE("layers are cut into stages") {
  auto sizes = [](const std::vector<Range>& cut) {
    std::vector<Index> all;
    Index at = 0;
    for (const Range& r : cut) {
      CHECK(r.begin == at);
      at = r.end;
      all.push_back(r.size());
    }
    return all;
  };
  using Sizes = std::vector<Index>;
  CHECK(sizes(cut_into_stages({32, 8, 8}, 4, "equal")) == Sizes{8, 8, 8, 8});
  CHECK(sizes(cut_into_stages({7, 8, 8}, 3, "equal")) == Sizes{3, 2, 2});
  CHECK(sizes(cut_into_stages({7, 8, 8}, 3, "1,5,1")) == Sizes{1, 5, 1});
  CHECK(sizes(cut_into_stages({6, 8, 4}, 2, "bytes")) == Sizes{3, 3});
  CHECK(sizes(cut_into_stages({9, 8, 4}, 3, "flops")) == Sizes{3, 3, 3});
  CHECK(sizes(cut_into_stages({5, 8, 4}, 2, "flops")) == Sizes{3, 2});
  // The first layer computes two products, and other layers three: 8, 6 and 6. With three, it would be 9, 9, 3.
  CHECK(sizes(cut_into_stages({7, 8, 4}, 3, "flops")) == Sizes{3, 2, 2});
  CHECK(sizes(cut_into_stages({7, 8, 8}, 5, "flops")) == Sizes{2, 2, 1, 1, 1});
  CHECK(sizes(cut_into_stages({4, 8, 4}, 3, "flops")) == Sizes{2, 1, 1});
  CHECK(sizes(cut_by_cost({1, 1, 1, 1, 10}, 2)) == Sizes{4, 1});
  CHECK(sizes(cut_by_cost({10, 1, 1, 1, 1}, 2)) == Sizes{1, 4});
  CHECK(sizes(cut_by_cost({5, 5, 5, 5}, 4)) == Sizes{1, 1, 1, 1});
  CHECK(sizes(cut_by_cost({3, 1, 4, 1, 5, 9, 2, 6}, 3)) == Sizes{5, 2, 1});  // 14, 11, 6
  CHECK(sizes(cut_by_cost({0, 0, 0}, 2)) == Sizes{2, 1});
  for (const char* bad :
       {"", "1,2", "1,2,5", "0,4,3", "a", "3,2,2,", "-1,4,4", "3;2;2", "1,2,99999999999999999999"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(cut_into_stages({7, 8, 8}, 3, bad), Error);
  }
  CHECK_THROWS_AS(cut_into_stages({2, 8, 8}, 3, "equal"), Error);
}

TEST_CASE("cut_by_cost is the best of all cuts") {
  for (unsigned seed = 1; seed < 200; ++seed) {
    std::vector<Index> costs;
    for (unsigned i = 0, state = seed; i < 3 + seed % 6; ++i) {
      state = state * 1103515245U + 12345U;
      costs.push_back(state >> 16 & 15);
    }
    const auto n = static_cast<Index>(costs.size());
    auto largest = [&](const std::vector<Range>& cut) {
      Index most = 0;
      for (const Range& r : cut) {
        Index sum = 0;
        for (Index i = r.begin; i < r.end; ++i) sum += costs[static_cast<std::size_t>(i)];
        most = std::max(most, sum);
      }
      return most;
    };
    Index best = INT64_MAX;
    for (Index a = 1; a < n - 1; ++a)
      for (Index b = a + 1; b < n; ++b) best = std::min(best, largest({{0, a}, {a, b}, {b, n}}));
    CHECK(largest(cut_by_cost(costs, 3)) == best);
  }
}

TEST_CASE("a schedule is drawn") {
  CHECK(draw(with_messages(2, 2, gpipe(2, 2))) ==
        "device 0  F0 F1 .  .  .  B1 B1 B0 B0\n"
        "device 1  .  F0 F1 B1 B1 B0 B0 .  .\n");
  CHECK(draw(with_messages(2, 2, zero_bubble(2, 2))) ==
        "device 0  F0 F1 .  I0 W0 I1 W1\n"
        "device 1  .  F0 I0 F1 I1 W0 W1\n");
  CHECK(draw(with_messages(2, 1, interleaved(1, 2, 1))) == "device 0  F0a F0b B0b B0b B0a B0a\n");
}

TEST_CASE("a drawing is as wide as the work of stages, and an idle share is that of their work") {
  // Micro-batches of 3, 2 and 0 rows; stage 1 has twice the layers of stage 0.
  const Schedule schedule = with_messages(2, 3, gpipe(2, 3));
  const ForwardWork work = {{{0, 0}, 30}, {{1, 0}, 20}, {{2, 0}, 0}, {{0, 1}, 60}, {{1, 1}, 40}, {{2, 1}, 0}};
  CHECK(draw(schedule, work) ==
        "device 0  F0 F1 .  .  .  .  .  .  .  B1 B1 .  .  B0 B0\n"
        "device 1  .  F0 F0 F1 F1 B1 B1 B1 B1 B0 B0 B0 B0 .  .\n");
  // Device 1 works from 30 to 330, and device 0 goes back through micro-batch 0 in 60: 390, of which 150 and 300.
  CHECK(std::abs(simulate(schedule, {.of_piece = work}).idle_share() - (1 - 450 / 780.0)) < 1e-12);
  CHECK_THAT(describe(schedule, work), contains("devices idle 42.3 % of the time"));
  const Schedule uneven = with_messages(4, 8, one_forward_one_backward(4, 8));
  ForwardWork layers;
  for (Index m = 0; m < 8; ++m)
    for (int stage = 0; stage < 4; ++stage) layers[{m, stage}] = stage == 3 ? 5 : 1;
  CHECK_THAT(describe(uneven, layers), contains("devices idle 62.8 % of the time"));
}

}  // namespace shard::testing
