#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/engines/tape.hpp"
#include "engine/engines/trainable.hpp"
#include "engine/layouts/placed.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

class Mesh;      // layouts/mesh.hpp
struct Traffic;  // books/ledger.hpp

/// Gradients by parameter name, each with its layout. dL/dx has the name `input_grad`; it is there only if
/// the caller wants it.
class Gradients : public std::map<std::string, Placed> {
 public:
  static constexpr const char* input_grad = "input_grad";

  Gradients();
  Gradients(Gradients&&) noexcept;
  Gradients& operator=(Gradients&&) noexcept;
  ~Gradients();

  /// Adds a gradient and books its memory as gradients.
  void put(const std::string& name, Placed gradient, SourceLine where = SourceLine::current());
  /// This device's part of a gradient. \throws Error argument when no gradient has that name.
  const Tensor& local(const std::string& name, SourceLine where = SourceLine::current()) const;
  /// The gradient of the rows of a parameter that this device updates. \throws Error argument, with the line
  /// that put the gradient, when it has another shape
  const Tensor& of_parameter(const std::string& name, const Shape& rows) const;
};

/// Computes dL/dout of some rows of the output. `output` holds the rows of the global batch from `first_row`
/// on. Returns a tensor of the output's shape. Every device that holds output calls it once for each piece.
using LossGradient = std::function<Tensor(const Tensor& output, Index first_row)>;

/// The input and the output of `inference_loop`, which device 0 reads and writes: rows of numbers.
class InputStream {
 public:
  virtual ~InputStream() = default;
  /// The next rows, (b, model_dim) with b > 0, or nothing at the end.
  virtual std::optional<Tensor> next() = 0;
};
class OutputStream {
 public:
  virtual ~OutputStream() = default;
  virtual void write(const Tensor& rows) = 0;
};

/// A model that is divided over a group of devices. Each chapter derives its engines from this class.
/// Collectives are members, so that a chapter calls them by their plain names. Typed collectives take and
/// return layouts, and run in their argument's group. Plain collectives take tensors, and run in the engine's
/// group.
class ShardedEngine {
 public:
  /// The group must outlive the engine.
  explicit ShardedEngine(Communicator& group) : group_(&group) {}
  virtual ~ShardedEngine() = default;

  /// \name The strategy: what a chapter defines
  /// @{
  /// Loads the parameters that this device owns. \throws Error file, usage
  virtual void load_checkpoint(const Checkpoint& checkpoint) = 0;
  /// Computes the output. `x`, (rows, model_dim), is this device's part of the input: see `input_layout()`.
  virtual Placed forward(Tensor x) = 0;
  /// Computes the gradients of the oldest forward pass that has had no backward pass yet. `dout` is its
  /// dL/dout, divided over the devices like its output.
  virtual Gradients backward(Tensor dout) = 0;
  /// Gradients of one global batch. By default it runs one forward pass and one backward pass.
  virtual Gradients forward_backward(Tensor x, const LossGradient& loss_gradient);
  /// The layout of the engine's input: whole on every device, divided by rows, or whole on one device.
  virtual Placement input_layout() const = 0;
  /// The rows of parameters that the optimizer updates on this device. `backward` returns their gradients.
  virtual Trainables trainable() = 0;
  /// Called after each step of the optimizer, to gather the rows that other devices have updated.
  virtual void after_step() {}
  /// The traffic along each axis of the engine's mesh since the ledger began to measure: "data",
  /// "data,expert" for several axes together, "all" for all devices. Empty without a mesh.
  std::map<std::string, Traffic> sent_along() const;
  /// The mesh that the engine is on, if there is one.
  virtual const Mesh* on_mesh() const { return nullptr; }
  /// A text about the last step for people to read, for example a pipeline's schedule. A collective; device
  /// 0's text is shown.
  virtual std::string describe_step() { return {}; }
  /// Computes outputs for all of device 0's `input`. The loop ends on every device when that input ends. Only
  /// device 0 reads `input` and writes `output`. Forward passes keep nothing for a backward pass.
  virtual void inference_loop(InputStream& input, OutputStream& output);
  /// @}

  /// The rows of a batch of this size that this device takes as input, as input_layout() says.
  Range input_rows(Index batch) const;
  /// Gathers a whole output or gradient on every device. A collective.
  Tensor whole(Placed placed, SourceLine where = SourceLine::current());

  /// Whether backward also computes dL/dx of the whole network.
  void want_input_grad(bool wanted) { wants_input_grad_ = wanted; }
  /// Whether reduce_scatter sends addends in bf16, where products round to bf16: half the bytes.
  void reduce_in_bf16(bool wanted) { reduces_in_bf16_ = wanted; }

  Communicator& group() const { return *group_; }
  int device_id() const { return group_->device_id(); }
  int num_devices() const { return group_->num_devices(); }

  /// \name Collectives on layouts: the only way from one layout to another
  /// Reductions are sums. They consume their argument: `all_reduce(std::move(p))`.
  /// @{
  Replicated all_reduce(Partial&& p, SourceLine where = SourceLine::current()) {
    return all_reduce_async(std::move(p), where).get(where);
  }
  Future<Replicated> all_reduce_async(Partial&& p, SourceLine where = SourceLine::current());
  template <int Axis>
  Sharded<Axis> reduce_scatter(Partial&& p, SourceLine where = SourceLine::current()) {
    return reduce_scatter_async<Axis>(std::move(p), where).get(where);
  }
  template <int Axis>
  Future<Sharded<Axis>> reduce_scatter_async(Partial&& p, SourceLine where = SourceLine::current());
  template <int Axis>
  Replicated all_gather(Sharded<Axis>&& s, SourceLine where = SourceLine::current()) {
    return all_gather_async(std::move(s), where).get(where);
  }
  /// The same, for a slice that is needed again: this device keeps it.
  template <int Axis>
  Replicated all_gather(const Sharded<Axis>& s, SourceLine where = SourceLine::current()) {
    return all_gather_async(s, where).get(where);
  }
  template <int Axis>
  Future<Replicated> all_gather_async(Sharded<Axis>&& s, SourceLine where = SourceLine::current());
  template <int Axis>
  Future<Replicated> all_gather_async(const Sharded<Axis>& s, SourceLine where = SourceLine::current());
  /// The whole of a matrix of which this device keeps rows, for products alone. Where products round to bf16,
  /// the rows are rounded before they are sent: the same products, and half the bytes. (MixedPrecision's
  /// param_dtype in PyTorch's FSDP, Zhao et al. 2023.)
  ReplicatedFactor all_gather_factor(const Sharded<0>& s, SourceLine where = SourceLine::current()) {
    return all_gather_factor_async(s, where).get(where);
  }
  Future<ReplicatedFactor> all_gather_factor_async(const Sharded<0>& s,
                                                   SourceLine where = SourceLine::current());
  /// This device's slice of a tensor that it holds whole. Needs no communication.
  template <int Axis>
  Sharded<Axis> shard(const Replicated& r, SourceLine where = SourceLine::current());
  template <int From, int To>
  Sharded<To> all_to_all(Sharded<From>&& s, SourceLine where = SourceLine::current());
  Replicated broadcast(Owned&& o, SourceLine where = SourceLine::current());
  /// This device's rows of a global tensor; the rows of all devices follow one another in device order. The
  /// devices tell each other in a control message how many rows they hold.
  Sharded<0> my_rows(Tensor rows, SourceLine where = SourceLine::current());
  /// Rows at the same place in the batch as those of `like`; the width may differ. Needs no message.
  Sharded<0> my_rows(Tensor rows, const Sharded<0>& like, SourceLine where = SourceLine::current()) const;

  /// The numbers of all devices, in device order. All devices pass equally many. Numbers are exact up to 2^24.
  std::vector<Index> all_gather(const std::vector<Index>& numbers, SourceLine where = SourceLine::current());

#include "engine/layouts/refused/collectives.inc"
  /// @}

  /// \name Plain calls, on tensors without a layout (see Communicator)
  /// @{
  void barrier(SourceLine where = SourceLine::current()) {
    group_->barrier(where);
  }
  void send(int dest_id, const Tensor& t, SourceLine where = SourceLine::current()) {
    group_->send(dest_id, t, where);
  }
  Tensor receive(int src_id, SourceLine where = SourceLine::current()) {
    return group_->receive(src_id, where);
  }
  Future<> post_send(int dest_id, Tensor t, SourceLine where = SourceLine::current()) {
    return group_->post_send(dest_id, std::move(t), where);
  }
  Future<Tensor> post_receive(int src_id, const Shape& shape, SourceLine where = SourceLine::current()) {
    return group_->post_receive(src_id, shape, where);
  }
  Future<> send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id,
                      SourceLine where = SourceLine::current()) {
    return group_->send_async(src, dst, target_device_id, where);
  }
  Tensor all_gather(Tensor t, int axis = 0, SourceLine where = SourceLine::current()) {
    return group_->all_gather_async(std::move(t), axis, std::nullopt, where).get(where);
  }
  Tensor all_reduce(Tensor t, ReduceOp op = ReduceOp::sum, SourceLine where = SourceLine::current()) {
    return group_->all_reduce_async(std::move(t), op, where).get(where);
  }
  Tensor reduce_scatter(Tensor t, ReduceOp op = ReduceOp::sum, int axis = 0,
                        SourceLine where = SourceLine::current()) {
    return group_->reduce_scatter_async(std::move(t), op, axis, where).get(where);
  }
  Tensor all_to_all(Tensor t, int axis = 0, SourceLine where = SourceLine::current()) {
    return all_to_all(std::move(t), axis, axis, where);
  }
  Tensor all_to_all(Tensor t, int split_axis, int concat_axis, SourceLine where = SourceLine::current()) {
    return group_->all_to_all_async(std::move(t), split_axis, concat_axis, where).get(where);
  }
  Tensor all_to_all(Tensor t, const std::vector<Index>& counts, int axis = 0,
                    SourceLine where = SourceLine::current()) {
    return group_->all_to_all_async(std::move(t), counts, axis, where).get(where);
  }
  Tensor broadcast(Tensor t, int root, SourceLine where = SourceLine::current()) {
    return group_->broadcast_async(std::move(t), root, where).get(where);
  }
  /// @}

 protected:
  /// \name Parameters from a checkpoint
  /// @{
  Replicated load_replicated(const Checkpoint& checkpoint, const std::string& name,
                             SourceLine where = SourceLine::current()) const;
  /// Loads the whole parameter on device `owner`, and nothing on the others.
  Owned load_owned(const Checkpoint& checkpoint, const std::string& name, int owner,
                   SourceLine where = SourceLine::current()) const;
  /// Loads this device's slice along Axis, and nothing else.
  template <int Axis>
  Sharded<Axis> load_sharded(const Checkpoint& checkpoint, const std::string& name,
                             SourceLine where = SourceLine::current()) const;
  /// Loads several parameters in one layout: `load_all<Sharded<0>>(checkpoint, layer_names(checkpoint))`.
  template <Layout L>
  std::vector<L> load_all(const Checkpoint& checkpoint, const std::vector<std::string>& names,
                          SourceLine where = SourceLine::current()) const;
  /// A gathered parameter, its memory booked as parameters.
  static Replicated as_parameter(Replicated gathered);
  /// @}

  /// Gradient accumulation. Cuts this device's rows of the batch, `x` (b, D), into pieces and takes them one
  /// after the other through forward, loss and backward. `backward` adds to the weights' gradients, which the
  /// caller holds, and returns dL/dx of its piece. The result is dL/dx of all rows of this device, (b, D), or
  /// nothing if dL/dx is not wanted.
  Sharded<0> in_pieces(Sharded<0> x, Index pieces, const LossGradient& loss_gradient,
                       const std::function<Placed(Sharded<0>)>& forward,
                       const std::function<Sharded<0>(Tensor)>& backward);

  bool wants_input_grad() const {
    return wants_input_grad_;
  }

 private:
  Communicator* group_;
  /// A matrix's addends, rounded to bf16, from each device to those that keep its rows, which add them in float32.
  static Future<Tensor> sum_of_rounded(Communicator& group, Tensor addend);

  bool wants_input_grad_ = false, reduces_in_bf16_ = false;
};

template <int Axis>
Future<Sharded<Axis>> ShardedEngine::reduce_scatter_async(Partial&& p, SourceLine where) {
  const CallSite call(where);
  Communicator& group = p.group();
  Shape global = p.global_shape();
  const bool is_rounded =
      Axis == 0 && global.size() == 2 && reduces_in_bf16_ && precision() == Precision::bf16;
  Tensor addend = detail::Access::take(std::move(p));
  Future<Tensor> sum = is_rounded ? sum_of_rounded(group, std::move(addend))
                                  : group.reduce_scatter_async(std::move(addend), ReduceOp::sum, Axis);
  return std::move(sum).then([&group, global](Tensor mine) {
    detail::require_result("reduce_scatter", detail::my_part_of(group, global, Axis), mine.shape());
    Index offset = part(global[Axis], group.num_devices(), group.device_id()).begin;
    return detail::Access::make<Sharded<Axis>>(group, std::move(mine), global, offset);
  });
}

template <int Axis>
Future<Replicated> ShardedEngine::all_gather_async(Sharded<Axis>&& s, SourceLine where) {
  const CallSite call(where);
  Communicator& group = s.group();
  Shape global = s.global_shape();
  return group.all_gather_async(detail::Access::take(std::move(s)), Axis, global)
      .then([&group, global](Tensor whole) {
        detail::require_result("all_gather", global, whole.shape());
        return detail::Access::make<Replicated>(group, std::move(whole), global, 0);
      });
}

template <int Axis>
Future<Replicated> ShardedEngine::all_gather_async(const Sharded<Axis>& s, SourceLine where) {
  const CallSite call(where);
  Communicator& group = s.group();
  Shape global = s.global_shape();
  return group.all_gather_async(s.local(), Axis, global).then([&group, global](Tensor whole) {
    detail::require_result("all_gather", global, whole.shape());
    return detail::Access::make<Replicated>(group, std::move(whole), global, 0);
  });
}

template <int Axis>
Sharded<Axis> ShardedEngine::shard(const Replicated& r, SourceLine where) {
  const CallSite call(where);
  Range mine = part(r.local().extent(Axis), r.group().num_devices(), r.group().device_id());
  return Sharded<Axis>(r.group(), slice(r.local(), Axis, mine.begin, mine.end), r.global_shape(), mine.begin);
}

template <int From, int To>
Sharded<To> ShardedEngine::all_to_all(Sharded<From>&& s, SourceLine where) {
  const CallSite call(where);
  static_assert(From != To, "all_to_all moves the cut from one axis to another: the axes are the same here");
  Communicator& group = s.group();
  Shape global = s.global_shape();
  Tensor mine = group.all_to_all_async(detail::Access::take(std::move(s)), To, From).get();
  detail::require_result("all_to_all", detail::my_part_of(group, global, To), mine.shape());
  Index offset = part(global.at(To), group.num_devices(), group.device_id()).begin;
  return Sharded<To>(group, std::move(mine), std::move(global), offset);
}

template <int Axis>
Sharded<Axis> ShardedEngine::load_sharded(const Checkpoint& checkpoint, const std::string& name,
                                          SourceLine where) const {
  const CallSite call(where);
  Shape global = checkpoint.shape(name);
  Range mine = part(global.at(Axis), num_devices(), device_id());
  return Sharded<Axis>(group(), checkpoint.slice(name, Axis, mine.begin, mine.end), global, mine.begin);
}

template <Layout L>
std::vector<L> ShardedEngine::load_all(const Checkpoint& checkpoint, const std::vector<std::string>& names,
                                       SourceLine where) const {
  const CallSite call(where);
  std::vector<L> all;
  for (const std::string& name : names)
    if constexpr (std::same_as<L, Replicated>)
      all.push_back(load_replicated(checkpoint, name));
    else
      all.push_back(load_sharded<axis_of<L>>(checkpoint, name));
  return all;
}

// Templates that most chapters use are compiled once, in sharded_engine.cpp. (Doxygen would take these lines
// for declarations without a class.)
/// \cond
extern template class Future<Replicated>;
extern template class Future<ReplicatedFactor>;
extern template class Future<Sharded<0>>;
extern template class Future<Sharded<1>>;
extern template Future<Sharded<0>> ShardedEngine::reduce_scatter_async<0>(Partial&&, SourceLine);
extern template Future<Sharded<1>> ShardedEngine::reduce_scatter_async<1>(Partial&&, SourceLine);
extern template Future<Replicated> ShardedEngine::all_gather_async<0>(Sharded<0>&&, SourceLine);
extern template Future<Replicated> ShardedEngine::all_gather_async<1>(Sharded<1>&&, SourceLine);
extern template Future<Replicated> ShardedEngine::all_gather_async<0>(const Sharded<0>&, SourceLine);
extern template Future<Replicated> ShardedEngine::all_gather_async<1>(const Sharded<1>&, SourceLine);
extern template Sharded<0> ShardedEngine::load_sharded<0>(const Checkpoint&, const std::string&,
                                                          SourceLine) const;
extern template Sharded<1> ShardedEngine::load_sharded<1>(const Checkpoint&, const std::string&,
                                                          SourceLine) const;
/// \endcond

}  // namespace shard
