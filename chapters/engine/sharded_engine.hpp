#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint.hpp"
#include "engine/device/device.hpp"
#include "engine/placed.hpp"
#include "engine/tape.hpp"
#include "engine/trainable.hpp"

namespace shard {

/// Gradients by parameter name, each with its layout; dL/dx, when it was asked for, under `input_grad`.
class Gradients : public std::map<std::string, Placed> {
 public:
  static constexpr const char* input_grad = "input_grad";

  /// Adds one and books its memory as gradients.
  void put(const std::string& name, Placed gradient);
  /// The local part. \throws Error argument when there is none of that name.
  const Tensor& local(const std::string& name) const;
};

/// dL/dout of some rows of the output: `output` holds rows from `first_row` of the global batch on. Returns a
/// tensor of the output's shape. Called on every device that holds output, once for each piece of it.
using LossGradient = std::function<Tensor(const Tensor& output, Index first_row)>;

/// Where rows of numbers come from and go to: `inference_loop` on device 0.
class InputStream {
 public:
  virtual ~InputStream() = default;
  /// The next rows, (b, model_dim), b > 0; nothing at the end.
  virtual std::optional<Tensor> next() = 0;
};
class OutputStream {
 public:
  virtual ~OutputStream() = default;
  virtual void write(const Tensor& rows) = 0;
};

/// A model cut up over a group of devices: what a chapter derives from. Collectives are members, so that a
/// chapter's text reads as the text it comes from. The typed ones take and return layouts, and take place in
/// the group that their argument lies on; the plain ones take tensors, and take place in the engine's group.
class ShardedEngine {
 public:
  /// The group outlives the engine.
  explicit ShardedEngine(Communicator& group) : group_(&group) {}
  virtual ~ShardedEngine() = default;

  /// \name The strategy: what a chapter defines
  /// @{
  /// Takes from the checkpoint what this device owns. \throws Error file, usage
  virtual void load_checkpoint(const Checkpoint& checkpoint) = 0;
  /// `x` is this device's part of the input, as `input_layout()` says: (rows, model_dim).
  virtual Placed forward(Tensor x) = 0;
  /// `dout` is dL/dout of the oldest forward not yet differentiated, cut as that forward's result.
  virtual Gradients backward(Tensor dout) = 0;
  /// Gradients of one global batch: by default a forward, then a backward. `first_row` as in LossGradient.
  virtual Gradients forward_backward(Tensor x, const LossGradient& loss_gradient);
  /// How the input is to be given: whole to every device, its rows divided, or whole to one device.
  virtual Placement input_layout() const = 0;
  /// What the optimizer updates on this device, rows of which `backward` gives the gradients.
  virtual Trainables trainable() = 0;
  /// Called after each step of the optimizer: gathers what the step has changed elsewhere.
  virtual void after_step() {}
  /// What the last step looked like, for people: a pipeline's schedule, say. A collective; device 0's text
  /// counts.
  virtual std::string describe_step() { return {}; }
  /// Streams inputs through until device 0's `input` ends, which ends the loop on every device. Device 0
  /// reads and writes; other devices' streams are not touched. Keeps no tape.
  virtual void inference_loop(InputStream& input, OutputStream& output);
  /// @}

  /// The rows of a batch that this device is to be given, as input_layout() says.
  Range input_rows(Index batch) const;
  /// The whole of what left an engine, on every device. A collective.
  Tensor whole(Placed placed);

  /// Whether backward also computes dL/dx of the whole network.
  void want_input_grad(bool wanted) { wants_input_grad_ = wanted; }

  Communicator& group() const { return *group_; }
  int device_id() const { return group_->device_id(); }
  int num_devices() const { return group_->num_devices(); }

  /// \name Collectives on layouts: the only way from one layout to another
  /// Reductions are sums and consume their argument: `all_reduce(std::move(p))`.
  /// @{
  Replicated all_reduce(Partial&& p) { return all_reduce_async(std::move(p)).get(); }
  Future<Replicated> all_reduce_async(Partial&& p);
  template <int Axis>
  Sharded<Axis> reduce_scatter(Partial&& p) {
    return reduce_scatter_async<Axis>(std::move(p)).get();
  }
  template <int Axis>
  Future<Sharded<Axis>> reduce_scatter_async(Partial&& p);
  template <int Axis>
  Replicated all_gather(Sharded<Axis>&& s) {
    return all_gather_async(std::move(s)).get();
  }
  /// The same, keeping my slice: for what will be needed again.
  template <int Axis>
  Replicated all_gather(const Sharded<Axis>& s) {
    return all_gather_async(s).get();
  }
  template <int Axis>
  Future<Replicated> all_gather_async(Sharded<Axis>&& s);
  template <int Axis>
  Future<Replicated> all_gather_async(const Sharded<Axis>& s);
  /// My slice of what I hold in full: no communication.
  template <int Axis>
  Sharded<Axis> shard(const Replicated& r);
  template <int From, int To>
  Sharded<To> all_to_all(Sharded<From>&& s);
  Replicated broadcast(Owned&& o);
  /// My rows of a global tensor whose pieces lie on the devices in order. The devices tell each other how
  /// many they hold, as a control message.
  Sharded<0> my_rows(Tensor rows);
  /// The same rows of the batch as those of `like`, which may be of another width. No message.
  Sharded<0> my_rows(Tensor rows, const Sharded<0>& like) const;

  /// All devices' numbers, equally many, one device's after the other's. Exact up to 2^24.
  std::vector<Index> all_gather(const std::vector<Index>& numbers);

  /// Mistakes, each answered by one sentence.
  template <class L>
  requires std::same_as<L, Partial> Replicated all_reduce(const L&) {
    static_assert(detail::always_false<L>,
                  "all_reduce consumes its argument: write all_reduce(std::move(x))");
    return {};
  }
  template <class L>
  requires(Layout<L> && !std::same_as<std::remove_cvref_t<L>, Partial>) Replicated all_reduce(L&&) {
    static_assert(
        detail::always_false<L>,
        "all_reduce sums a Partial; this tensor is no addend of a sum, and reducing it would count it once "
        "per device");
    return {};
  }
  template <class L>
  requires Layout<L> Replicated all_reduce(L&&, ReduceOp) {
    static_assert(detail::always_false<L>,
                  "a Partial is an addend, so its reduction is a sum: take no operation");
    return {};
  }
  /// @}

  /// \name Plain calls, on tensors about which nothing is said (see Communicator)
  /// @{
  void barrier() { group_->barrier(); }
  void send(int dest_id, const Tensor& t) { group_->send(dest_id, t); }
  Tensor receive(int src_id) { return group_->receive(src_id); }
  Future<> post_send(int dest_id, Tensor t) { return group_->post_send(dest_id, std::move(t)); }
  Future<Tensor> post_receive(int src_id, const Shape& shape) { return group_->post_receive(src_id, shape); }
  Future<> send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id) {
    return group_->send_async(src, dst, target_device_id);
  }
  Tensor all_gather(Tensor t, int axis = 0) { return group_->all_gather_async(std::move(t), axis).get(); }
  Tensor all_reduce(Tensor t, ReduceOp op = ReduceOp::sum) {
    return group_->all_reduce_async(std::move(t), op).get();
  }
  Tensor reduce_scatter(Tensor t, ReduceOp op = ReduceOp::sum, int axis = 0) {
    return group_->reduce_scatter_async(std::move(t), op, axis).get();
  }
  Tensor all_to_all(Tensor t, int axis = 0) { return all_to_all(std::move(t), axis, axis); }
  Tensor all_to_all(Tensor t, int split_axis, int concat_axis) {
    return group_->all_to_all_async(std::move(t), split_axis, concat_axis).get();
  }
  Tensor all_to_all(Tensor t, const std::vector<Index>& counts, int axis = 0) {
    return group_->all_to_all_async(std::move(t), counts, axis).get();
  }
  Tensor broadcast(Tensor t, int root) { return group_->broadcast_async(std::move(t), root).get(); }
  /// @}

 protected:
  /// \name Parameters from a checkpoint
  /// @{
  Replicated load_replicated(const Checkpoint& checkpoint, const std::string& name) const;
  /// The whole on device `owner`, and nothing on others.
  Owned load_owned(const Checkpoint& checkpoint, const std::string& name, int owner) const;
  /// My slice along Axis, and no byte more.
  template <int Axis>
  Sharded<Axis> load_sharded(const Checkpoint& checkpoint, const std::string& name) const;
  /// Several parameters, each laid out so: `load_all<Sharded<0>>(checkpoint, layer_names(checkpoint))`.
  template <Layout L>
  std::vector<L> load_all(const Checkpoint& checkpoint, const std::vector<std::string>& names) const;
  /// @}

  /// Gradient accumulation: my rows of the batch, `x` (b, D), in so many pieces one after the other, each
  /// through forward, loss and backward. `backward` adds to gradients of weights, which are the caller's, and
  /// returns dL/dx of its piece. Returns dL/dx of all my rows, (b, D), or nothing if it is not wanted.
  Sharded<0> in_pieces(Sharded<0> x, Index pieces, const LossGradient& loss_gradient,
                       const std::function<Placed(Sharded<0>)>& forward,
                       const std::function<Sharded<0>(Tensor)>& backward);

  bool wants_input_grad() const { return wants_input_grad_; }

 private:
  Communicator* group_;
  bool wants_input_grad_ = false;
};

template <int Axis>
Future<Sharded<Axis>> ShardedEngine::reduce_scatter_async(Partial&& p) {
  Communicator& group = p.group();
  Shape global = p.global_shape();
  return group.reduce_scatter_async(detail::Access::take(std::move(p)), ReduceOp::sum, Axis)
      .then([&group, global](Tensor mine) {
        detail::require_result("reduce_scatter", detail::my_part_of(group, global, Axis), mine.shape());
        Index offset = part(global[Axis], group.num_devices(), group.device_id()).begin;
        return detail::Access::make<Sharded<Axis>>(group, std::move(mine), global, offset);
      });
}

template <int Axis>
Future<Replicated> ShardedEngine::all_gather_async(Sharded<Axis>&& s) {
  Communicator& group = s.group();
  Shape global = s.global_shape();
  return group.all_gather_async(detail::Access::take(std::move(s)), Axis)
      .then([&group, global](Tensor whole) {
        detail::require_result("all_gather", global, whole.shape());
        return detail::Access::make<Replicated>(group, std::move(whole), global, 0);
      });
}

template <int Axis>
Future<Replicated> ShardedEngine::all_gather_async(const Sharded<Axis>& s) {
  Communicator& group = s.group();
  Shape global = s.global_shape();
  return group.all_gather_async(s.local(), Axis).then([&group, global](Tensor whole) {
    detail::require_result("all_gather", global, whole.shape());
    return detail::Access::make<Replicated>(group, std::move(whole), global, 0);
  });
}

template <int Axis>
Sharded<Axis> ShardedEngine::shard(const Replicated& r) {
  Range mine = part(r.local().extent(Axis), r.group().num_devices(), r.group().device_id());
  return Sharded<Axis>(r.group(), slice(r.local(), Axis, mine.begin, mine.end), r.global_shape(), mine.begin);
}

template <int From, int To>
Sharded<To> ShardedEngine::all_to_all(Sharded<From>&& s) {
  static_assert(From != To, "all_to_all moves the cut from one axis to another: the axes are the same here");
  Communicator& group = s.group();
  Shape global = s.global_shape();
  Tensor mine = group.all_to_all_async(detail::Access::take(std::move(s)), To, From).get();
  detail::require_result("all_to_all", detail::my_part_of(group, global, To), mine.shape());
  Index offset = part(global.at(To), group.num_devices(), group.device_id()).begin;
  return Sharded<To>(group, std::move(mine), std::move(global), offset);
}

template <int Axis>
Sharded<Axis> ShardedEngine::load_sharded(const Checkpoint& checkpoint, const std::string& name) const {
  Shape global = checkpoint.shape(name);
  Range mine = part(global.at(Axis), num_devices(), device_id());
  return Sharded<Axis>(group(), checkpoint.slice(name, Axis, mine.begin, mine.end), global, mine.begin);
}

template <Layout L>
std::vector<L> ShardedEngine::load_all(const Checkpoint& checkpoint,
                                       const std::vector<std::string>& names) const {
  std::vector<L> all;
  for (const std::string& name : names)
    if constexpr (std::same_as<L, Replicated>)
      all.push_back(load_replicated(checkpoint, name));
    else
      all.push_back(load_sharded<detail::IsSharded<L>::axis>(checkpoint, name));
  return all;
}

}  // namespace shard
