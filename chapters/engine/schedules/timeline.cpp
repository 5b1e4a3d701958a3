#include "engine/schedules/timeline.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "engine/basics/terminal.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/device/gathered.hpp"
#include "engine/schedules/checker.hpp"
#include "engine/schedules/interpreter.hpp"

namespace shard {

using Kind = Action::Kind;

Index Durations::of(const Action& action) const {
  const Index times = of_piece.empty() ? 1 : of_piece.at({action.micro_batch, action.stage});
  if (action.kind == Kind::forward) return times * forward;
  if (action.kind == Kind::backward_input) return times * backward_input;
  if (action.kind == Kind::backward_weights) return times * backward_weights;
  return action.kind == Kind::backward ? times * (backward_input + backward_weights) : 0;
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

struct PostTimes {
  std::map<Message, Index> sends, receives;
};

/// Adds up the time of one device.
class Clock : public Interpreter {
 public:
  Clock(const Durations& durations, PostTimes& posts) : durations_(durations), posts_(posts) {}

  std::vector<Slot> work;
  Index now = 0;

 protected:
  void forward(Index m, int s) override { do_work({Kind::forward, m, s}); }
  void backward(Index m, int s) override { do_work({Kind::backward, m, s}); }
  void backward_input(Index m, int s) override { do_work({Kind::backward_input, m, s}); }
  void backward_weights(Index m, int s) override { do_work({Kind::backward_weights, m, s}); }
  void post_send(const Message& m) override { posts_.sends[m] = now; }
  void post_receive(const Message& m) override { posts_.receives[m] = now; }
  void wait_sent(const Message& m) override { now = std::max(now, posts_.receives.at(m)); }
  void wait_received(const Message& m) override { now = std::max(now, posts_.sends.at(m)); }

 private:
  void do_work(const Action& a) {
    work.push_back({a, now, now + durations_.of(a)});
    now = work.back().end;
  }

  const Durations& durations_;
  PostTimes& posts_;
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
  PostTimes posts;
  std::vector<Clock> clocks(schedule.actions.size(), Clock(durations, posts));
  std::vector<Interpreter*> interpreters;
  for (Clock& clock : clocks) interpreters.push_back(&clock);
  interpret_together(schedule, Sends::posted, interpreters);
  Timeline timeline;
  for (Clock& clock : clocks) {
    timeline.length = std::max(timeline.length, clock.now);
    timeline.work.push_back(std::move(clock.work));
  }
  return timeline;
}

namespace {

/// The slots of each forward in a drawing: those of a stage's largest micro-batch, or none.
ForwardWork slots_of(const ForwardWork& work) {
  std::map<int, Index> of_stage;
  for (const auto& [piece, amount] : work) of_stage[piece.second] = std::max(of_stage[piece.second], amount);
  Index least = 0;  // of all stages with work
  for (const auto& [stage, most] : of_stage)
    if (most > 0 && (least == 0 || most < least)) least = most;
  ForwardWork slots;
  for (const auto& [piece, amount] : work)
    slots[piece] = amount > 0 ? (of_stage[piece.second] + least / 2) / least : 0;
  return slots;
}

}  // namespace

std::string draw(const Schedule& schedule, const ForwardWork& work) {
  const Timeline timeline = simulate(schedule, {.of_piece = slots_of(work)});
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
  const Index per_band = (drawing_columns() - 10) / static_cast<Index>(width + 1);
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

Index operations_so_far() {
  return ledger().flops();
}

ForwardWork work_of_all(Communicator& group, const ForwardWork& mine) {
  ForwardWork all;
  for (const ForwardWork& theirs : gather_for_all(group, "operations of forwards", mine))
    all.insert(theirs.begin(), theirs.end());
  return all;
}

std::string describe(const Schedule& schedule, const ForwardWork& work) {
  std::vector<Index> held;
  for (int d = 0; d < schedule.devices; ++d) held.push_back(most_held(schedule, d));
  std::string text = fmt::format(
      "{}devices idle {:.1f} % of the time, if messages took none; micro-batches held, by device: {}\n",
      draw(schedule, work), 100 * simulate(schedule, {.of_piece = work}).idle_share(), fmt::join(held, ", "));
  for (const Stuck& s : find_cycle(schedule, Sends::blocking))
    text += fmt::format("if sends blocked: device {} would wait for device {} in {}\n", s.device, s.waits_for,
                        to_string(s.action));
  return text;
}

}  // namespace shard
