#include "tests/benchmarks/emu_recorder.hpp"

#include "emu/host_memory.hpp"
#include "engine/device/runtime/argument_checks.hpp"
#include "engine/device/runtime/stream.hpp"
#include "engine/device/wrapped_communicator.hpp"
#include "engine/proof/costs.hpp"

namespace shard::bench {

namespace {

/// A call's position in the list; no position while nothing is recorded.
class Noted {
 public:
  Noted(std::shared_ptr<Steps> steps, Exchange exchange) : steps_(std::move(steps)) {
    if (!steps_) return;
    place_ = steps_->size();
    steps_->emplace_back(std::move(exchange));
  }

  /// Records how many slices of `t` along an axis go to each device.
  void parts(const Tensor& t, int axis, const std::vector<Index>& counts) const {
    if (!steps_) return;
    for (Index count : counts)
      exchange().counts.push_back(t.size() == 0 ? 0 : count * t.size() / t.extent(axis));
  }
  /// The same by the rule of split.hpp.
  void equal_parts(const Tensor& t, int axis, int devices) const {
    if (steps_) parts(t, axis, slices(t.extent(axis), 1, devices));
  }
  const Tensor& result(const Tensor& t) const {
    if (steps_) exchange().out = TensorMemory::data(t);
    if (steps_) exchange().out_size = t.size();
    return t;
  }
  /// Records the result of a future, and returns the future.
  Future<Tensor> result_of(Future<Tensor> future) const {
    if (!steps_) return future;
    return std::move(future).then([*this](Tensor t) {
      result(t);
      return t;
    });
  }
  /// Records the wait for a future, and returns the future.
  Future<Tensor> wait_for(Future<Tensor> future) const {
    if (!steps_) return future;
    return std::move(future).then([*this](Tensor t) {
      wait();
      return t;
    });
  }
  Future<> wait_for(Future<> future) const;
  void wait() const { steps_->emplace_back(Wait{place_}); }

 private:
  Exchange& exchange() const { return std::get<Exchange>((*steps_)[place_]); }

  std::shared_ptr<Steps> steps_;
  std::size_t place_ = 0;
};

/// Records the wait for a posted send.
class Posted : public Pending {
 public:
  Posted(Future<> future, Noted noted) : future_(std::move(future)), noted_(std::move(noted)) {}

  bool test() override { return future_.ready(); }
  void wait() override {
    future_.wait();
    noted_.wait();
  }
  Tensor take_result() override { return Tensor(); }
  void dropped() noexcept override {}

 private:
  Future<> future_;
  Noted noted_;
};

Future<> Noted::wait_for(Future<> future) const {
  if (!steps_) return future;
  return {std::make_shared<Posted>(std::move(future), *this), [](Tensor) {}};
}

/// Forwards every call, and records it if there is a list.
class RecordedGroup : public WrappedCommunicator {
 public:
  /// A collective of the group. Each call looks for the list in `steps`.
  RecordedGroup(Communicator& group, const std::shared_ptr<Steps>& steps)
      : WrappedCommunicator(group), steps_(steps) {
    MPI_Group all = MPI_GROUP_NULL, mine = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, num_devices(), members().data(), &mine);
    MPI_Comm_create_group(MPI_COMM_WORLD, mine, 0, &comm_);
    MPI_Group_free(&mine);
    MPI_Group_free(&all);
  }
  ~RecordedGroup() override { MPI_Comm_free(&comm_); }
  RecordedGroup(const RecordedGroup&) = delete;
  RecordedGroup& operator=(const RecordedGroup&) = delete;

 protected:
  void do_barrier() override {
    note(Collective::barrier, Tensor());
    inner().barrier();
  }
  void do_send(int to, const Tensor& t) override {
    note(Collective::send, t, to);
    inner().send(to, t);
  }
  Tensor do_receive(int from) override {
    const Noted noted = note_message(Tensor(), from, {.receives = true, .is_posted = false});
    Tensor t = inner().receive(from);
    noted.result(t);
    return t;
  }
  Future<> do_post_send(int to, Tensor&& t) override {
    const Noted noted = note_message(t, to, {.receives = false, .is_posted = true});
    return noted.wait_for(inner().post_send(to, std::move(t)));
  }
  Future<Tensor> do_post_receive(int from, const Shape& shape) override {
    const Noted noted = note_message(Tensor(), from, {.receives = true, .is_posted = true});
    return noted.wait_for(noted.result_of(inner().post_receive(from, shape)));
  }
  Future<> do_send_async(const Tensor& src, Tensor& dst, std::optional<int> target) override {
    note(Collective::send_async, src, target.value_or(-1)).result(dst);
    return inner().send_async(src, dst, target);
  }
  Future<Tensor> do_all_gather(Tensor&& slice, int axis, const std::optional<Shape>& whole) override {
    const Noted noted = note(Collective::all_gather, slice);
    return noted.result_of(inner().all_gather_async(std::move(slice), axis, whole));
  }
  Future<Tensor> do_all_gather(const Tensor& slice, int axis, const std::optional<Shape>& whole) override {
    return note(Collective::all_gather, slice).result_of(inner().all_gather_async(slice, axis, whole));
  }
  Future<Tensor> do_all_reduce(Tensor&& t, ReduceOp op) override {
    const Noted noted = note(Collective::all_reduce, t);
    return noted.result_of(inner().all_reduce_async(std::move(t), op));
  }
  Future<Tensor> do_reduce_scatter(Tensor&& t, ReduceOp op, int axis) override {
    const Noted noted = note(Collective::reduce_scatter, t);
    noted.equal_parts(t, axis, num_devices());
    return noted.result_of(inner().reduce_scatter_async(std::move(t), op, axis));
  }
  Future<Tensor> do_all_to_all(Tensor&& t, int split_axis, int concat_axis) override {
    const Noted noted = note(Collective::all_to_all, t);
    noted.equal_parts(t, split_axis, num_devices());
    return noted.result_of(inner().all_to_all_async(std::move(t), split_axis, concat_axis));
  }
  Future<Tensor> do_all_to_all(Tensor&& t, const std::vector<Index>& counts, int axis) override {
    const Noted noted = note(Collective::all_to_all, t);
    noted.parts(t, axis, counts);
    return noted.result_of(inner().all_to_all_async(std::move(t), counts, axis));
  }
  Future<Tensor> do_broadcast(Tensor&& t, int root) override {
    const Noted noted = note(Collective::broadcast, t, root);
    return noted.result_of(inner().broadcast_async(std::move(t), root));
  }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override;

 private:
  struct Message {
    bool receives, is_posted;
  };
  Noted note(Collective call, const Tensor& in, int peer = -1) const {
    return note_message(in, peer, {false, false}, call);
  }
  Noted note_message(const Tensor& in, int peer, Message message, Collective call = Collective::send) const {
    return {steps_,
            {call,
             comm_,
             TensorMemory::data(in),
             nullptr,
             in.size(),
             0,
             peer,
             message.receives,
             message.is_posted,
             {}}};
  }

  const std::shared_ptr<Steps>& steps_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Also owns the group that it wraps.
class RecordedPart : public RecordedGroup {
 public:
  RecordedPart(std::unique_ptr<Communicator> part, const std::shared_ptr<Steps>& steps)
      : RecordedGroup(*part, steps), part_(std::move(part)) {}

 private:
  std::unique_ptr<Communicator> part_;
};

std::unique_ptr<Communicator> RecordedGroup::wrap(std::unique_ptr<Communicator> part) {
  return std::make_unique<RecordedPart>(std::move(part), steps_);
}

}  // namespace

EmuRecorder::EmuRecorder(Communicator& group) : group_(std::make_unique<RecordedGroup>(group, steps_)) {}

void EmuRecorder::product(Operand a, Operand b, const Tensor& c, bool accumulates) {
  const Extents e = extents_of_product(a, b);
  steps_->emplace_back(Product{
      a.is_transposed, b.is_transposed, static_cast<int>(e.m), static_cast<int>(e.n), static_cast<int>(e.k),
      TensorMemory::data(*a.tensor), static_cast<int>(a.tensor->extent(1)), TensorMemory::data(*b.tensor),
      static_cast<int>(b.tensor->extent(1)), accumulates ? 1.0F : 0.0F, TensorMemory::data(c)});
}

Steps EmuRecorder::record(const std::function<void()>& run) {
  const Index calls_before = runtime::stream().calls(), flops_before = ledger().flops();
  const auto list = std::make_shared<Steps>();
  {
    const Observation observation(*this);
    steps_ = list;
    run();
    steps_ = nullptr;
  }
  Index calls = 0, flops = 0;
  for (const auto& step : *list)
    if (const auto* p = std::get_if<Product>(&step))
      flops += product_flops(p->m, p->k, p->n);
    else if (std::holds_alternative<Exchange>(step))
      ++calls;
  const Index calls_made = runtime::stream().calls() - calls_before;
  const Index computed = ledger().flops() - flops_before;
  if (calls != calls_made || flops != computed)
    refuse(Code::internal, "record", fmt::format("{} calls and {} operations", calls_made, computed),
           fmt::format("{} and {}", calls, flops));
  return *list;
}

}  // namespace shard::bench
