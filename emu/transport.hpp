#pragma once

/// Messages between devices. All collectives go through here: bytes are counted here, faults are planted here,
/// and here it is known what a device waits for.

#include <mpi.h>

#include <list>
#include <span>
#include <vector>

#include "emu/faults.hpp"
#include "engine/control_plane.hpp"
#include "engine/ledger.hpp"

namespace shard::emu {

/// Queues between two devices that do not overtake one another.
enum class Channel : int {
  header,  ///< what a call is, before its data; not counted
  data,    ///< tensor data of collectives
  letter,  ///< shapes of what is sent and received
  content  ///< its data
};
inline constexpr int num_channels = 4;

/// Messages posted and not yet known to be complete.
class Posts {
 public:
  bool empty() const { return requests_.empty(); }
  const std::vector<Blocked::Need>& needs() const { return needs_; }

 private:
  friend class Transport;
  std::vector<MPI_Request> requests_;
  std::vector<Blocked::Need> needs_;
};

class Transport {
 public:
  Transport();

  int device_id() const { return id_; }
  int num_devices() const { return size_; }

  /// Posts tensor data. Memory stays untouched until the posts are complete. Empty messages are not sent, on
  /// either side.
  void post_send(Posts& posts, Collective call, int to, std::span<const float> values);
  void post_receive(Posts& posts, int from, std::span<float> values);
  /// A message without content, to tell that something was reached; counted as a message.
  void post_token(Posts& posts, Collective call, int to);
  void post_token_receive(Posts& posts, int from);
  /// Control data. A `synchronous` send is complete only when its receiver has begun to receive.
  void post_control(Posts& posts, Channel channel, int to, std::span<const Index> numbers,
                    bool synchronous = false);
  void post_control_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers);
  /// The number of the next letter to, or from, a device.
  Index next_letter_to(int device) { return letters_to_[static_cast<std::size_t>(device)]++; }
  Index next_letter_from(int device) { return letters_from_[static_cast<std::size_t>(device)]++; }
  /// The data of a letter, found by its number: places for it may be posted in any order.
  void post_content(Posts& posts, int to, Index letter, std::span<const float> values);
  void post_content_receive(Posts& posts, int from, Index letter, std::span<float> values);

  /// Whether all posts are complete; complete ones are forgotten. \throws Error lost when a peer is gone
  bool test(Posts& posts);

  /// \name For tests
  /// @{
  void plant(const Faults& faults);
  /// Counts a call; true when it is the one to be left out.
  bool leaves_out_this_call();
  std::int64_t calls() const { return calls_; }
  std::int64_t messages() const { return messages_; }
  /// @}

 private:
  enum class Side { sending, receiving };

  /// The control plane's slot of a queue, as its poster counts it.
  Index slot(Side side, Channel channel, int peer) const;
  void track(Posts& posts, MPI_Request request, Side side, Channel channel, int peer);
  /// The values as they are, or corrupted when this is the message to corrupt.
  std::span<const float> tampered(std::span<const float> values);
  void send_values(Posts& posts, Channel channel, int tag, int to, std::span<const float> values);
  void receive_values(Posts& posts, Channel channel, int tag, int from, std::span<float> values);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int id_ = 0;
  int size_ = 1;
  std::vector<Index> letters_to_, letters_from_;
  Faults faults_;
  std::int64_t calls_ = 0;
  std::int64_t messages_ = 0;
  std::list<std::vector<float>> corrupted_;  // kept, as a message may still be on its way
};

Transport& transport();

}  // namespace shard::emu
