#include "engine/program/interruption.hpp"

#include <fmt/format.h>

namespace shard {

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
    throw Error(Code::interrupted, fmt::format("interrupted at step {}", step));
}

}  // namespace shard
