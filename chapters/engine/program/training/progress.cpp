#include "engine/program/training/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "engine/basics/terminal.hpp"

namespace shard {

namespace {

/// "1:02:03" or "4:05".
std::string time_text(double seconds) {
  const auto all = static_cast<Index>(seconds + 0.5);
  if (all < 3600) return fmt::format("{}:{:02}", all / 60, all % 60);
  return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

}  // namespace

Progress::Progress(Index steps) : steps_(steps), is_terminal_(speaks_to_terminal()) {}

std::string Progress::pace(Index step, Clock::time_point now) const {
  const double seconds = std::chrono::duration<double>(now - start_).count() / static_cast<double>(step);
  return fmt::format("{:.3g} ms/step, {} left", 1e3 * seconds,
                     time_text(seconds * static_cast<double>(steps_ - step)));
}

void Progress::show(Index step, double loss) {
  const auto now = Clock::now();
  const bool is_milestone = step == 1 || step == steps_ || step % std::max<Index>(steps_ / 5, 1) == 0;
  const bool is_due =
      now - shown_ >= (is_terminal_ ? std::chrono::milliseconds(500) : std::chrono::seconds(10));
  if (!is_milestone && !is_due) return;
  shown_ = now;
  const std::string text = fmt::format("  step {:>5}   loss {:.5f}", step, loss);
  constexpr const char* erase_line = "\r\033[K";
  if (has_open_line_) fmt::print("{}", erase_line);
  has_open_line_ = is_terminal_ && !is_milestone;
  if (is_milestone)
    fmt::print("{}\n", text);
  else
    fmt::print("{}   {}{}", text, pace(step, now), is_terminal_ ? "" : "\n");
  std::fflush(stdout);
}

namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

volatile std::sig_atomic_t has_signal = 0;

void note_signal(int) {
  has_signal = 1;
}

}  // namespace

Interruption::Interruption() {
  struct sigaction noted {};
  noted.sa_handler = note_signal;
  noted.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  has_signal = 0;
  sigaction(SIGINT, &noted, &before_interrupt_);
  sigaction(SIGTERM, &noted, &before_terminate_);
}

Interruption::~Interruption() {
  sigaction(SIGINT, &before_interrupt_, nullptr);
  sigaction(SIGTERM, &before_terminate_, nullptr);
}

void Interruption::look(const Communicator& group, Index step) {
  if (has_signal == 0) return;
  const auto now = steady_clock::now();
  if (!seen_) seen_ = now;
  if (group.device_id() == 0 || now - *seen_ > 1s)
    throw Error(Code::interrupted, "interrupted at step {}", step);
}

}  // namespace shard
