#include "cuda/host_staged.hpp"

#include <set>

#include "cuda/gpu_memory.hpp"
#include "cuda/nccl/connections.hpp"
#include "cuda/success.hpp"

namespace shard {

namespace {

/// The storage's copy on the host, made at its first use. Its block is free when the storage is: a call ends behind its
/// copies between the two (see staged), also one whose body fails.
float* on_host(cuda::GpuStorage& memory) {
  if (!memory.on_host) memory.on_host = std::make_shared<cuda::Workspace>(memory.bytes(), cuda::host_memory);
  return memory.on_host->data<float>();
}

}  // namespace

std::span<const float> TensorMemory::span(const Tensor& t) {
  if (t.size() == 0) return {};
  return {on_host(*cuda::storage(t)), static_cast<std::size_t>(t.size())};
}

std::span<float> TensorMemory::span(Tensor& t) {
  if (t.size() == 0) return {};
  cuda::storage(t)->is_written_on_host = true;
  return {on_host(*cuda::storage(t)), static_cast<std::size_t>(t.size())};
}

namespace cuda {

namespace {

using runtime::Call;
using runtime::Task;

/// The place of a body among those of all calls. Bodies begin in the order of their copies to the host: an event that is
/// asked for a little later may be reached where the one before was not yet, and a body that begins first overtakes the
/// other's message.
class Place {
 public:
  Place() = default;
  ~Place() { leave(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Turn turn() const { return {begun, number_}; }
  /// The body has begun, or never will.
  void leave() {
    if (!std::exchange(has_left_, true)) left.insert(number_);
    while (left.erase(begun) > 0) ++begun;
  }

 private:
  static inline Index given = 0, begun = 0;
  static inline std::set<Index> left;  // behind others that have not

  Index number_ = given++;
  bool has_left_ = false;
};

/// A body that runs within another one.
class Inner : public runtime::Awaited {
 public:
  explicit Inner(Task body) : body_(std::move(body)) {}
  bool test() override { return body_.run_until_it_waits(); }
  std::optional<Blocked::Dependencies> dependencies() const override {
    return body_.awaited() == nullptr ? Blocked::Dependencies{} : body_.awaited()->dependencies();
  }
  void finish() override {
    if (body_.error()) std::rethrow_exception(body_.error());
  }

 private:
  Task body_;
};

/// Whether the body reads the tensor that it begins with.
bool reads_argument(const Call& call) {
  switch (call.request.function) {
    case Request::receive:
    case Request::post_receive:
      return false;
    case Request::broadcast:
      return call.me() == call.peer();
    default:
      return true;
  }
}

void copy_to_host(const Tensor& t, cudaStream_t stream) {
  if (t.size() == 0) return;
  storage(t)->is_written_on_host = false;
  SHARDBOOK_CHECK(cudaMemcpyAsync(on_host(*cuda::storage(t)), data_on(stream, t),
                                  static_cast<std::size_t>(t.bytes()), cudaMemcpyDeviceToHost, stream));
}

/// If the body has written to the copy.
void copy_from_host(Tensor& t, cudaStream_t stream) {
  if (t.size() == 0 || !std::exchange(storage(t)->is_written_on_host, false)) return;
  SHARDBOOK_CHECK(cudaMemcpyAsync(data_on(stream, t), on_host(*cuda::storage(t)),
                                  static_cast<std::size_t>(t.bytes()), cudaMemcpyHostToDevice, stream));
}

Task staged(Call& call, Task over_the_wire) {
  const cudaStream_t stream = gpu().communication();
  Place place;
  {
    LaunchIn after_computation(stream, call);
    if (reads_argument(call)) copy_to_host(call.tensor, stream);
    if (call.request.into && call.request.into->size() > 0)
      storage(*call.request.into)->is_written_on_host = false;  // a call that failed may have left it
  }
  co_await *events_of(call).end;
  Turn turn = place.turn();
  co_await turn;
  Inner body(std::move(over_the_wire));
  body.test();
  place.leave();
  co_await body;
  {
    // The body's tensors may have memory that computation has read since the call began.
    events_of(call).argument.record(gpu().computation());
    LaunchIn after_computation(stream, call);
    copy_from_host(call.tensor, stream);
    if (call.request.into) copy_from_host(*call.request.into, stream);
  }
  co_await *events_of(call).end;
}

}  // namespace

Task HostStaged::body_of(Call& call) {
  return staged(call, runtime::definition_of(call.request.function).body(call));
}

}  // namespace cuda
}  // namespace shard
