#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/device/wrapped_communicator.hpp"

namespace shard {

/// What goes wrong on purpose, so that a reader sees what is said of it: on one device, at one of its calls.
struct Fault {
  enum class Kind {
    kill,    ///< the device is killed, a tenth of a second later, when the others wait for it
    exit,    ///< it leaves the program with code 0, likewise
    raise,   ///< it throws an exception ("throw" on the command line)
    stop,    ///< it is stopped, as by a debugger; SIGCONT lets it go on
    delay,   ///< it makes the call a second later
    skip,    ///< it leaves the call out, and goes on with its argument
    corrupt  ///< the first element of what it passes is one more
  };
  int device = 0;
  Index call = 1;  ///< the device's calls are counted from 1, as in errors
  Kind kind = Kind::kill;
};

/// "device=2,call=17,kind=kill", or nothing where the text is no fault.
std::optional<Fault> fault_from(const std::string& text);

/// The future of a call that was left out: it is done, and its result is the call's argument.
Future<Tensor> left_out(Tensor&& given);

/// A communicator, and all parts of it, in which a fault happens.
class FaultyCommunicator : public WrappedCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, const Fault& fault)
      : FaultyCommunicator(inner, fault, std::make_shared<Index>(0)) {}

  /// Calls that this device has made, in all groups.
  Index calls() const { return *calls_; }

 protected:
  void do_barrier() override;
  void do_send(int dest_id, const Tensor& t) override;
  Tensor do_receive(int src_id) override;
  Future<> do_post_send(int dest_id, Tensor&& t) override;
  Future<Tensor> do_post_receive(int src_id, const Shape& shape) override;
  Future<> do_send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id) override;
  Future<Tensor> do_all_gather(Tensor&& slice, int axis, const std::optional<Shape>& whole) override;
  Future<Tensor> do_all_gather(const Tensor& slice, int axis, const std::optional<Shape>& whole) override;
  Future<Tensor> do_all_reduce(Tensor&& t, ReduceOp op) override;
  Future<Tensor> do_reduce_scatter(Tensor&& t, ReduceOp op, int axis) override;
  Future<Tensor> do_all_to_all(Tensor&& t, int split_axis, int concat_axis) override;
  Future<Tensor> do_all_to_all(Tensor&& t, const std::vector<Index>& counts, int axis) override;
  Future<Tensor> do_broadcast(Tensor&& t, int root) override;
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override;

 private:
  FaultyCommunicator(Communicator& inner, const Fault& fault, std::shared_ptr<Index> calls)
      : WrappedCommunicator(inner), fault_(fault), calls_(std::move(calls)) {}
  friend class FaultyPart;

  /// Counts a call. If it is the one, kills, stops or delays this device; true if the call is to be left out.
  bool is_left_out();
  /// What the call passes: the argument, or one that is corrupted.
  Tensor passed(Tensor&& t) const;
  bool is_now() const;
  bool corrupts_now() const;

  Fault fault_;
  std::shared_ptr<Index> calls_;  // of this device, in all groups
};

}  // namespace shard
