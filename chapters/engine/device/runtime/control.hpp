#pragma once

/// Control messages between devices, over MPI in both backends: shapes and other news of a call. Nothing of
/// it is counted. What is posted is known to the control plane, so that it can tell what a device waits for.

#include <mpi.h>

#include <optional>
#include <span>
#include <vector>

#include "engine/device/runtime/control_plane.hpp"

namespace shard::runtime {

/// Queues between two devices that do not overtake one another. Each backend uses some of them.
enum class Channel : int {
  header,         ///< what a call is, before its data
  data,           ///< tensor data of collectives, where MPI carries it
  letter,         ///< shapes of what is sent and received
  content,        ///< its data, where MPI carries it
  receiver,       ///< the receiver is there
  place_to_send,  ///< the sender's message is the k-th between the two
  place_to_receive
};
inline constexpr int num_channels = 7;

/// What an operation waits for.
class Awaited {
 public:
  virtual ~Awaited() = default;
  virtual bool test() = 0;
  /// Of other devices; nothing: it waits for another operation of this device.
  virtual std::optional<Blocked::Needs> needs() const = 0;
};

/// Messages posted and not yet known to be complete.
class Posts : public Awaited {
 public:
  /// Complete ones are forgotten. \throws Error lost when a peer is gone
  bool test() override;
  std::optional<Blocked::Needs> needs() const override { return needs_; }

 private:
  friend class Control;
  std::vector<MPI_Request> requests_;
  Blocked::Needs needs_;
};

enum class Side { sending, receiving };

class Control {
 public:
  Control();

  int device_id() const { return id_; }
  int num_devices() const { return size_; }

  /// Memory stays untouched until the posts are complete. A `synchronous` send is complete only when its
  /// receiver has begun to receive.
  void post(Posts& posts, Channel channel, int to, std::span<const Index> numbers, bool synchronous = false);
  void post_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers);

  /// For a backend that sends its data here too.
  MPI_Comm comm() const { return comm_; }
  void track(Posts& posts, MPI_Request request, Side side, Channel channel, int peer);

  /// Calls made by this device; an error names a call by its number.
  Index calls() const { return calls_; }
  Index count_call() { return calls_++; }
  void count_calls_anew() { calls_ = 0; }

 private:
  /// The control plane's slot of a queue, as its poster counts it.
  Index slot(Side side, Channel channel, int peer) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int id_ = 0;
  int size_ = 1;
  Index calls_ = 0;
};

Control& control();

/// \throws Error lost unless an MPI call was a success.
void require_success(int result, const char* what);
/// \throws Error argument when MPI cannot count so many.
int message_size(std::size_t elements);

}  // namespace shard::runtime
