#pragma once

/// Inference where blocks are divided: requests that follow one another from device to device.

#include <deque>

#include "engine/sharded_engine.hpp"
#include "layers_stage.hpp"

namespace shard::decoders {

/// Sequences that a stage is to work on.
struct Request {
  Tokens tokens;
  Owned x;  ///< (T, D); the first stage makes it of the tokens
};

/// Sends tensors at once, and receives one when it is needed. An activation is (b, S, D) on its way, so that
/// each device knows its sequences; an empty one marks the end. Labels go from the first device to the last.
class Requests {
 public:
  Requests(Communicator& group, const Stage& stage, InputStream& input)
      : group_(group), stage_(stage), input_(input) {}

  /// The next request here. After the last one, tells the next device and returns nothing.
  std::optional<Request> next() {
    std::optional<Request> request = stage_.is_first() ? from_input() : from_device_before();
    if (!request && !stage_.is_last()) post(group_.device_id() + 1, Tensor());
    return request;
  }
  /// Sends what a stage has made to the next one; or the losses, (T, 1), to device 0.
  void pass_on(const Tokens& tokens, Owned x) {
    Tensor out = std::move(x).local();
    if (stage_.is_last()) return post(0, std::move(out));
    post(group_.device_id() + 1,
         std::move(out).reshaped({tokens.sequences, tokens.length, stage_.m.model_dim}));
    if (stage_.is_first()) post(last(), labels_of(tokens));
  }
  /// The losses of the oldest request whose losses device 0 has not taken yet.
  Tensor take_result() {
    if (last() != 0) return group_.receive(last());
    Tensor result = std::move(here_.front());
    here_.pop_front();
    return result;
  }
  /// Returns when all tensors have left.
  void finish() {
    for (Future<>& sent : sent_) sent.wait();
    sent_.clear();
  }

 private:
  int last() const { return group_.num_devices() - 1; }

  std::optional<Request> from_input() {
    const std::optional<Tensor> rows = input_.next();
    if (!rows) return std::nullopt;
    return Request{Tokens::read(*rows, stage_.m.vocabulary), Owned()};
  }
  std::optional<Request> from_device_before() {
    Tensor x = group_.receive(group_.device_id() - 1);  // (b, S, D)
    if (x.size() == 0) return std::nullopt;
    Tokens tokens = tokens_of(x.extent(0), x.extent(1), stage_.is_last() ? group_.receive(0) : Tensor());
    x = std::move(x).reshaped({tokens.rows(), stage_.m.model_dim});
    return Request{std::move(tokens), Owned::mine(group_, std::move(x))};
  }
  /// A tensor for this device is stored until it is taken.
  void post(int to, Tensor t) {
    if (to == group_.device_id()) return here_.push_back(std::move(t));
    sent_.push_back(group_.post_send(to, std::move(t)));
    if (static_cast<int>(sent_.size()) <= 2 * group_.num_devices()) return;
    sent_.front().wait();  // the oldest one has arrived by now
    sent_.pop_front();
  }

  Communicator& group_;
  const Stage& stage_;
  InputStream& input_;
  std::deque<Tensor> here_;
  std::deque<Future<>> sent_;
};

}  // namespace shard::decoders
