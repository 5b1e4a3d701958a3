#include "engine/device/runtime/control_plane.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "engine/device/error.hpp"

namespace shard::runtime {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr auto patience = 1000ms;          // a device that waits longer asks for a search for a deadlock
constexpr auto between_questions = 200ms;  // the time between two rounds of that search
constexpr auto grace = 3000ms;             // the time in which device 0 must print another device's last line

enum Tag { failure = 1, question, answer, verdict };

/// Numbers and a text as bytes, and back.
std::string pack(const std::vector<Index>& numbers, const std::string& text) {
  Index count = static_cast<Index>(numbers.size());
  std::string bytes(sizeof(Index) * (numbers.size() + 1), '\0');
  std::memcpy(bytes.data(), &count, sizeof count);
  if (count > 0) std::memcpy(bytes.data() + sizeof count, numbers.data(), sizeof(Index) * numbers.size());
  return bytes + text;
}

std::pair<std::vector<Index>, std::string> unpack(const std::string& bytes) {
  Index count = 0;
  std::memcpy(&count, bytes.data(), sizeof count);
  std::vector<Index> numbers(static_cast<std::size_t>(count));
  std::size_t end = sizeof(Index) * (numbers.size() + 1);
  if (count > 0) std::memcpy(numbers.data(), bytes.data() + sizeof count, end - sizeof count);
  return {numbers, bytes.substr(end)};
}

void print_line(const std::string& line) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s\n", line.c_str());
  std::fflush(stderr);
}

}  // namespace

/// The MPI side: a communicator of our own, so that no message meets tensor data.
struct ControlPlane::Messages {
  MPI_Comm comm = MPI_COMM_NULL;

  void send(int to, Tag tag, const std::string& bytes) const {
    // Small enough to be buffered: this returns whatever the other device is doing.
    MPI_Send(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm);
  }
  /// A message with this tag, if one has come.
  bool take(int from, Tag tag, int& source, std::string& bytes) const {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(from, tag, comm, &there, &status);
    if (!there) return false;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    bytes.resize(static_cast<std::size_t>(count));
    source = status.MPI_SOURCE;
    MPI_Recv(bytes.data(), count, MPI_BYTE, source, tag, comm, MPI_STATUS_IGNORE);
    return true;
  }
};

/// One device's state in a round of questions.
struct ControlPlane::Answer {
  std::string call;
  std::vector<Blocked::Needs> in_flight;
  std::map<Index, std::vector<Index>> posted;  // by group and slot
  bool operator==(const Answer&) const = default;

  std::string packed() const;
  static Answer from(const std::string& bytes);
  bool meets(const Blocked::Need& need) const;
};

std::string ControlPlane::Answer::packed() const {
  std::vector<Index> numbers = {static_cast<Index>(in_flight.size())};
  for (const Blocked::Needs& needs : in_flight) {
    numbers.push_back(static_cast<Index>(needs.size()));
    for (const Blocked::Need& need : needs)
      numbers.insert(numbers.end(), {need.peer, need.group, need.slot, need.entries});
  }
  for (const auto& [group, counts] : posted) {
    numbers.insert(numbers.end(), {group, static_cast<Index>(counts.size())});
    numbers.insert(numbers.end(), counts.begin(), counts.end());
  }
  return pack(numbers, call);
}

ControlPlane::Answer ControlPlane::Answer::from(const std::string& bytes) {
  auto [numbers, call] = unpack(bytes);
  auto at = numbers.begin();
  std::vector<Blocked::Needs> in_flight(static_cast<std::size_t>(*at++));
  for (Blocked::Needs& needs : in_flight) {
    needs.resize(static_cast<std::size_t>(*at++));
    for (Blocked::Need& need : needs) {
      need = {at[0], at[1], at[2], at[3]};
      at += 4;
    }
  }
  std::map<Index, std::vector<Index>> posted;
  while (at != numbers.end()) {
    const auto counts = at + 2;
    posted[at[0]] = {counts, counts + at[1]};
    at = counts + at[1];
  }
  return {call, std::move(in_flight), std::move(posted)};
}

bool ControlPlane::Answer::meets(const Blocked::Need& need) const {
  const auto counts = posted.find(need.group);
  return counts != posted.end() && counts->second.at(static_cast<std::size_t>(need.slot)) >= need.entries;
}

ControlPlane::ControlPlane() : messages_(std::make_unique<Messages>()) {}
ControlPlane::~ControlPlane() = default;

ControlPlane& ControlPlane::instance() {
  static ControlPlane plane;
  return plane;
}

void ControlPlane::start(int& argc, char**& argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &messages_->comm);
  MPI_Comm_rank(messages_->comm, &id_);
  MPI_Comm_size(messages_->comm, &size_);
  set_this_device(id_);
}

void ControlPlane::keep_going(std::function<void()> advance,
                              std::function<std::vector<Blocked::Needs>()> in_flight) {
  advance_ = std::move(advance);
  in_flight_ = std::move(in_flight);
}

void ControlPlane::wait_for(const std::string& what, Blocked::Needs needs,
                            const std::function<bool()>& is_done) {
  auto describe = [&] {
    Blocked blocked{what, in_flight_()};
    blocked.in_flight.push_back(needs);
    return blocked;
  };
  for (Wait wait; !is_done(); wait.idle(describe)) advance_();
}

void ControlPlane::Wait::look(const std::function<Blocked()>& describe) {
  ControlPlane& plane = instance();
  sched_yield();  // there may be more devices than cores
  plane.hear_of_failures();
  plane.hear_of_deadlock();
  plane.answer_question(describe());
  auto now = steady_clock::now();
  if (since_ == steady_clock::time_point{}) since_ = now;
  if (plane.id() == 0 && now - since_ > patience) plane.ask_around(describe());
}

void ControlPlane::hear_of_failures() {
  int source = 0;
  std::string bytes;
  if (id_ != 0 || !messages_->take(MPI_ANY_SOURCE, failure, source, bytes)) return;
  auto [code, line] = unpack(bytes);
  fail(static_cast<Code>(code.at(0)), line);
}

void ControlPlane::hear_of_deadlock() {
  int source = 0;
  std::string bytes;
  if (id_ != 0 && messages_->take(0, verdict, source, bytes))
    throw Error(Code::deadlock, unpack(bytes).second);
}

ControlPlane::Answer ControlPlane::my_answer(const Blocked& mine) const {
  Answer answer{mine.call, mine.in_flight, {}};
  for (const auto& [group, counts] : posted_) answer.posted[group] = *counts;
  return answer;
}

void ControlPlane::answer_question(const Blocked& mine) {
  int source = 0;
  std::string bytes;
  if (id_ == 0 || !messages_->take(0, question, source, bytes)) return;
  messages_->send(0, answer, my_answer(mine).packed());
}

/// Device 0 asks all devices in rounds. If all answers are the same in two rounds, no device has gone on
/// between them, so the answers describe one state of the job.
void ControlPlane::ask_around(const Blocked& mine) {
  int source = 0;
  std::string bytes;
  while (missing_answers_ > 0 && messages_->take(MPI_ANY_SOURCE, answer, source, bytes)) {
    answers_[static_cast<std::size_t>(source)] = Answer::from(bytes);
    --missing_answers_;
  }
  if (missing_answers_ > 0 || steady_clock::now() - asked_ < between_questions) return;
  if (round_ > 0) {
    bool i_moved = answers_[0] != my_answer(mine);
    if (!i_moved && answers_ == earlier_answers_) judge();
    earlier_answers_ = answers_;
  }
  answers_.resize(static_cast<std::size_t>(size_));
  answers_[0] = my_answer(mine);
  asked_ = steady_clock::now();
  missing_answers_ = size_ - 1;
  ++round_;
  for (int d = 1; d < size_; ++d) messages_->send(d, question, pack({round_}, ""));
}

/// All devices wait, and none has gone on. This is a deadlock, unless the needs of some operation are met:
/// then its messages have been sent and will arrive.
void ControlPlane::judge() {
  auto is_met = [&](const Blocked::Need& need) {
    return answers_[static_cast<std::size_t>(need.peer)].meets(need);
  };
  auto goes_on = [&](const Blocked::Needs& needs) { return std::ranges::all_of(needs, is_met); };
  std::string line = "deadlock:";
  for (std::size_t d = 0; d < answers_.size(); ++d) {
    if (std::ranges::any_of(answers_[d].in_flight, goes_on)) return;
    line += fmt::format("{} device {} waits in {}", d == 0 ? "" : ";", d, answers_[d].call);
  }
  for (int d = 1; d < size_; ++d) messages_->send(d, verdict, pack({}, line));
  throw Error(Code::deadlock, line);
}

void ControlPlane::fail(Code code, const std::string& line) {
  if (id_ != 0) {
    MPI_Request request;
    std::string bytes = pack({static_cast<Index>(code)}, line);
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, failure, messages_->comm, &request);
    int sent = 0;
    for (auto start = steady_clock::now(); steady_clock::now() - start < grace;
         std::this_thread::sleep_for(1ms))
      if (!sent) MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
  }
  print_line(line);
  if (size_ == 1) {  // nobody else to end, and MPI_Abort would add lines of its own
    MPI_Finalize();
    std::_Exit(static_cast<int>(code));
  }
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::abort();  // MPI_Abort does not return
}

void ControlPlane::finish() {
  MPI_Comm_free(&messages_->comm);
  MPI_Finalize();
}

}  // namespace shard::runtime
