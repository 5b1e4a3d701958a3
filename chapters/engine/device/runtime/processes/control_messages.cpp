#include "engine/device/runtime/processes/control_messages.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "engine/device/this_device.hpp"

namespace shard::runtime {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

ControlMessages& ControlMessages::instance() {
  return device().state<ControlMessages>();
}

void ControlMessages::begin() {
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_rank(comm_, &id_);
  MPI_Comm_size(comm_, &size_);
}

void ControlMessages::send(int to, Tag tag, std::string bytes) {
  in_flight_.remove_if([](Sent& sent) {
    int done = 0;
    MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  Sent& sent = in_flight_.emplace_back(Sent{std::move(bytes)});
  MPI_Isend(sent.bytes.data(), static_cast<int>(sent.bytes.size()), MPI_BYTE, to, tag, comm_, &sent.request);
}

bool ControlMessages::try_receive(Tag tag, int& source, std::string& bytes) const {
  int there = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &there, &status);
  if (!there) return false;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  bytes.resize(static_cast<std::size_t>(count));
  source = status.MPI_SOURCE;
  MPI_Recv(bytes.data(), count, MPI_BYTE, source, tag, comm_, MPI_STATUS_IGNORE);
  return true;
}

void ControlMessages::send_and_wait_for_the_end(Tag tag, const std::string& bytes) const {
  MPI_Request request;
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, tag, comm_, &request);
  int sent = 0;
  for (auto start = steady_clock::now(); steady_clock::now() - start < time_to_print;
       std::this_thread::sleep_for(1ms))
    if (!sent) MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
}

}  // namespace shard::runtime
