#include "tests/benchmarks/emu_recorder.hpp"

#include "emu/operations/host_memory.hpp"
#include "engine/device/communicator/wrapped_communicator.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"
#include "engine/device/runtime/stream.hpp"
#include "engine/proof/costs.hpp"

namespace shard::bench {

namespace {

/// Forwards every call, and records it if there is a list.
class RecordedGroup : public WrappedCommunicator {
 public:
  /// A collective of the group, which the recorder may own. Each call looks for the list in `steps`.
  template <class Group>
  RecordedGroup(Group&& group, const std::shared_ptr<Steps>& steps)
      : WrappedCommunicator(std::forward<Group>(group)), steps_(steps) {
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

  Future<CallResult> call(Request&& request) override {
    if (!request.is_counted() || !steps_) return WrappedCommunicator::call(std::move(request));
    const Exchange made = exchange_of(request);
    const std::size_t place = steps_->size();
    steps_->emplace_back(made);
    return WrappedCommunicator::call(std::move(request))
        .then([steps = steps_, place, made](CallResult result) {
          auto& noted = std::get<Exchange>((*steps)[place]);
          if (made.receives || made.call >= Collective::all_gather) {
            noted.out = TensorMemory::data(result.tensor);
            noted.out_size = result.tensor.size();
          }
          if (made.is_posted) steps->emplace_back(Wait{place});
          return result;
        });
  }

 protected:
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override {
    return std::make_unique<RecordedGroup>(std::move(part), steps_);
  }

 private:
  Exchange exchange_of(const Request& request) const {
    const Request::Function function = request.function;
    const Tensor& t = request.tensor;
    Exchange made;
    made.call = request.collective();
    made.comm = comm_;
    made.in = TensorMemory::data(t);
    made.in_size = t.size();
    if (request.into) made.out = TensorMemory::data(*request.into);
    if (request.into) made.out_size = request.into->size();
    made.peer = request.peer.value_or(-1);
    made.receives = function == Request::receive || function == Request::post_receive;
    made.is_posted = function == Request::post_send || function == Request::post_receive;
    if (function == Request::reduce_scatter || function == Request::all_to_all) {
      const Index extent = t.extent(*request.axis);
      for (Index count : request.counts.value_or(slices(extent, 1, num_devices())))
        made.counts.push_back(t.size() == 0 ? 0 : count * t.size() / extent);
    }
    return made;
  }

  const std::shared_ptr<Steps>& steps_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace

EmuRecorder::EmuRecorder(Communicator& group) : group_(std::make_unique<RecordedGroup>(group, steps_)) {}

void EmuRecorder::product(Operand a, Operand b, const Tensor& c, bool accumulates) {
  const Extents e = extents_of_product(a, b);
  for (Index i = 0; i < e.count; ++i)
    steps_->emplace_back(Product{
        a.is_transposed, b.is_transposed, static_cast<int>(e.m), static_cast<int>(e.n), static_cast<int>(e.k),
        TensorMemory::data(*a.tensor) + i * e.m * e.k, static_cast<int>(a.tensor->shape().back()),
        TensorMemory::data(*b.tensor) + i * e.k * e.n, static_cast<int>(b.tensor->shape().back()),
        accumulates ? 1.0F : 0.0F, TensorMemory::data(c) + i * e.m * e.n});
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
