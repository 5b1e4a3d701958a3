// Sends the data of NCCL's calls. A line with the call goes before the data, and the receiver compares it
// with its own call.

#include "transfers.hpp"

#include <fmt/format.h>

#include <cstring>
#include <list>
#include <memory>

namespace cuda_double {

namespace {

/// Of an H200. Calls in flight occupy some, also while they wait for other devices.
constexpr int all_multiprocessors = 132;
int occupied = 0;

struct Outgoing {
  std::vector<char> bytes;
  MPI_Request request;
};

/// The calls of one group while their data are being sent and received.
class Transfer {
 public:
  explicit Transfer(std::vector<Call> calls) : calls_(std::move(calls)), comm_(calls_[0].comm) {
    turn_ = comm_->launched++;
  }

  /// True when all data have been sent and received.
  bool advance() {
    if (comm_->done != turn_) return false;
    if (!has_begun_) begin();
    for (auto e = expected_.begin(); e != expected_.end();) e = take(*e) ? expected_.erase(e) : std::next(e);
    int is_sent = 1;
    for (Outgoing& o : outgoing_)
      if (is_sent) PMPI_Test(&o.request, &is_sent, MPI_STATUS_IGNORE);
    if (!expected_.empty() || !is_sent) {
      complain_if_late();
      return false;
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) put_together(calls_[i], arrived_[i]);
    ++comm_->done;
    occupied -= comm_->multiprocessors;
    return true;
  }

 private:
  struct Expected {
    std::size_t call;
    int source;
  };

  void begin() {
    has_begun_ = true;
    occupied += comm_->multiprocessors;
    if (occupied > all_multiprocessors)
      violation(fmt::format("{}: calls in flight need {} multiprocessors of {}", name_of(calls_[0].line.kind),
                            occupied, all_multiprocessors));
    since_ = std::chrono::steady_clock::now();
    arrived_.resize(calls_.size());
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& c = calls_[i];
      arrived_[i].resize(static_cast<std::size_t>(comm_->size()));
      for (int other = 0; other < comm_->size(); ++other) {
        if (sends_to(c, other)) post(c, other);
        if (receives_from(c, other)) expected_.push_back({i, other});
      }
    }
  }

  void post(const Call& c, int to) {
    const std::size_t bytes = bytes_of(c.line.count, c.line.type);
    const char* data = static_cast<char*>(kept_at(c.from));
    if (c.line.kind == Kind::reduce_scatter) data += static_cast<std::size_t>(to) * bytes;
    Outgoing& o = outgoing_.emplace_back();
    o.bytes.resize(sizeof(Line) + bytes);
    std::memcpy(o.bytes.data(), &c.line, sizeof(Line));
    std::memcpy(o.bytes.data() + sizeof(Line), data, bytes);
    MPI_Issend(o.bytes.data(), static_cast<int>(o.bytes.size()), MPI_BYTE,
               comm_->members[static_cast<std::size_t>(to)], comm_->tag, world_of_double(), &o.request);
  }

  /// Takes a message, if it has arrived. Messages of one source arrive in the order of its calls.
  bool take(const Expected& e) {
    for (const Expected& earlier : expected_) {
      if (earlier.call == e.call && earlier.source == e.source) break;
      if (earlier.source == e.source) return false;
    }
    int there = 0;
    MPI_Message message;
    MPI_Status status;
    MPI_Improbe(comm_->members[static_cast<std::size_t>(e.source)], comm_->tag, world_of_double(), &there,
                &message, &status);
    if (!there) return false;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    std::vector<char> bytes(static_cast<std::size_t>(count));
    MPI_Mrecv(bytes.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    Line theirs;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    const Line& mine = calls_[e.call].line;
    if (theirs != mine)
      violation(fmt::format("calls that do not fit: {} here and {} on rank {}", mine.describe(),
                            theirs.describe(), e.source));
    arrived_[e.call][static_cast<std::size_t>(e.source)].assign(bytes.begin() + sizeof(Line), bytes.end());
    return true;
  }

  void complain_if_late() {
    if (std::chrono::steady_clock::now() - since_ < patience()) return;
    if (expected_.empty())
      violation(fmt::format("nobody receives: {} on rank {}", calls_[0].line.describe(), comm_->rank));
    violation(fmt::format("nothing comes from rank {}: {} on rank {}", expected_.front().source,
                          calls_[expected_.front().call].line.describe(), comm_->rank));
  }

  std::vector<Call> calls_;
  ncclComm_t comm_;
  std::int64_t turn_;
  bool has_begun_ = false;
  std::chrono::steady_clock::time_point since_;
  std::list<Outgoing> outgoing_;
  std::list<Expected> expected_;
  std::vector<std::vector<std::vector<char>>> arrived_;  // by call and rank
};

}  // namespace

std::function<bool()> transfer_of(std::vector<Call> calls) {
  return [transfer = std::make_shared<Transfer>(std::move(calls))] { return transfer->advance(); };
}

}  // namespace cuda_double
