#pragma once

/// Messages of processes to one another beside all calls: errors, and the search for deadlocks. They have an MPI
/// communicator of their own, so none matches tensor data.

#include <mpi.h>

#include <chrono>
#include <list>
#include <string>

namespace shard::runtime {

/// For another device to print an error, and to end this one.
inline constexpr std::chrono::milliseconds time_to_print{3000};

class ControlMessages {
 public:
  enum Tag { failure = 1, question, answer, verdict };

  /// Those of this process.
  static ControlMessages& instance();
  /// A collective of all processes. Call it once, after MPI_Init.
  void begin();
  void end() { MPI_Comm_free(&comm_); }

  int id() const { return id_; }
  int size() const { return size_; }

  /// Does not wait for the receiver, which may be computing.
  void send(int to, Tag tag, std::string bytes);
  /// Receives a message with this tag from anybody, if one has arrived. Returns who sent it.
  bool try_receive(Tag tag, int& source, std::string& bytes) const;
  /// Sends a message to device 0, and waits for as long as that may take to end this process.
  void send_and_wait_for_the_end(Tag tag, const std::string& bytes) const;

 private:
  struct Sent {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  MPI_Comm comm_ = MPI_COMM_NULL;
  int id_ = 0, size_ = 1;
  std::list<Sent> in_flight_;
};

}  // namespace shard::runtime
