#include "timeline.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "checker.hpp"
#include "rehearsal.hpp"

namespace shard::pipeline {

using Kind = Action::Kind;

Index Durations::of(const Action& action) const {
  if (action.kind == Kind::forward) return forward;
  if (action.kind == Kind::backward_input) return backward_input;
  if (action.kind == Kind::backward_weights) return backward_weights;
  return action.kind == Kind::backward ? backward_input + backward_weights : 0;
}

Index Timeline::busy(int device) const {
  Index sum = 0;
  for (const Slot& slot : work[static_cast<std::size_t>(device)]) sum += slot.end - slot.begin;
  return sum;
}

double Timeline::idle_share() const {
  Index sum = 0;
  for (std::size_t d = 0; d < work.size(); ++d) sum += busy(static_cast<int>(d));
  return 1 - static_cast<double>(sum) / static_cast<double>(length * static_cast<Index>(work.size()));
}

namespace {

/// All devices' clocks.
class Simulation {
 public:
  Simulation(const Schedule& schedule, const Durations& durations)
      : schedule_(schedule), durations_(durations) {
    timeline_.work.resize(schedule.actions.size());
    now_.resize(schedule.actions.size());
  }

  Timeline run() {
    std::vector<std::size_t> at(schedule_.actions.size());
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t d = 0; d < at.size(); ++d)
        for (; at[d] < schedule_.actions[d].size() && take(d, schedule_.actions[d][at[d]]); ++at[d])
          goes_on = true;
    }
    for (Index end : now_) timeline_.length = std::max(timeline_.length, end);
    return std::move(timeline_);
  }

 private:
  /// Does one thing, unless it waits for another device that has not come so far.
  bool take(std::size_t device, const Action& a) {
    Index& now = now_[device];
    if (a.is_work()) {
      timeline_.work[device].push_back({a, now, now + durations_.of(a)});
      now += durations_.of(a);
    } else if (a.kind != Kind::wait) {
      (a.kind == Kind::post_send ? sent_ : awaited_)[a.message()] = now;
    } else {
      const bool is_sender = schedule_.sender(a.message()) == static_cast<int>(device);
      const auto& others = is_sender ? awaited_ : sent_;
      auto posted = others.find(a.message());
      if (posted == others.end()) return false;
      now = std::max(now, posted->second);
    }
    return true;
  }

  const Schedule& schedule_;
  const Durations& durations_;
  Timeline timeline_;
  std::vector<Index> now_;
  std::map<Message, Index> sent_, awaited_;
};

/// "F3", or "F3b" for a device's second stage.
std::string label(const Schedule& schedule, const Action& a) {
  const char* letters = "FBIW";
  std::string text = fmt::format("{}{}", letters[static_cast<int>(a.kind)], a.micro_batch);
  if (schedule.stages > schedule.devices) text += static_cast<char>('a' + a.stage / schedule.devices % 26);
  return text;
}

}  // namespace

Timeline simulate(const Schedule& schedule, const Durations& durations) {
  return Simulation(schedule, durations).run();
}

std::string draw(const Schedule& schedule) {
  constexpr Index page_width = 100;
  const Timeline timeline = simulate(schedule, Durations());
  std::size_t width = 0;
  std::vector<std::vector<std::string>> cells;
  for (const std::vector<Slot>& work : timeline.work) {
    std::vector<std::string>& row = cells.emplace_back(static_cast<std::size_t>(timeline.length), ".");
    for (const Slot& slot : work)
      for (Index t = slot.begin; t < slot.end; ++t) {
        row[static_cast<std::size_t>(t)] = label(schedule, slot.action);
        width = std::max(width, row[static_cast<std::size_t>(t)].size());
      }
  }
  const Index per_band = (page_width - 10) / static_cast<Index>(width + 1);
  std::string text;
  for (Index begin = 0; begin < timeline.length; begin += per_band) {
    if (begin > 0) text += '\n';
    for (std::size_t d = 0; d < cells.size(); ++d) {
      std::string line = fmt::format("device {:<2}", d);
      for (Index t = begin; t < std::min(begin + per_band, timeline.length); ++t)
        line += fmt::format(" {:<{}}", cells[d][static_cast<std::size_t>(t)], width);
      text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    }
  }
  return text;
}

std::string describe(const Schedule& schedule) {
  std::vector<Index> held;
  for (int d = 0; d < schedule.devices; ++d) held.push_back(most_held(schedule, d));
  std::string text = fmt::format(
      "{}devices idle {:.1f} % of the time, if messages took none; micro-batches held, by device: {}\n",
      draw(schedule), 100 * simulate(schedule, Durations()).idle_share(), fmt::join(held, ", "));
  for (const Stuck& s : find_cycle(schedule, Sends::blocking))
    text += fmt::format("if sends blocked: device {} would wait for device {} in {}\n", s.device, s.waits_for,
                        to_string(s.action));
  return text;
}

}  // namespace shard::pipeline
