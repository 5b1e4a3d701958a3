#include "tests/benchmarks/emu_recorder.hpp"

#include <fmt/format.h>

#include "emu/faults.hpp"
#include "emu/host_memory.hpp"
#include "engine/proof/costs.hpp"

// The linker's --wrap: a call of NAME elsewhere goes to __wrap_NAME, and __real_NAME is what NAME was.
// _ZN5shard5worldEv is shard::world().
extern "C" {
shard::Communicator& __real__ZN5shard5worldEv();
shard::Communicator& __wrap__ZN5shard5worldEv();
void __real_cblas_sgemm(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                        float*, int);
void __wrap_cblas_sgemm(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                        float*, int);
}

namespace shard::bench {

namespace {

/// A posted send, whose wait is listed.
class Posted : public Pending {
 public:
  Posted(Future<> future, std::function<void()> note_wait)
      : future_(std::move(future)), note_wait_(std::move(note_wait)) {}

  bool test() override { return future_.ready(); }
  void wait() override {
    future_.wait();
    note_wait_();
  }
  Tensor take_result() override { return Tensor(); }
  void dropped() noexcept override {}

 private:
  Future<> future_;
  std::function<void()> note_wait_;
};

/// Passes every call on, and lists it.
class Recorder : public Communicator {
 public:
  explicit Recorder(Communicator& device) : device_(device) {}

  std::vector<Step> steps;

  int device_id() const override { return device_.device_id(); }
  int num_devices() const override { return device_.num_devices(); }
  void synchronize() override { device_.synchronize(); }
  std::vector<Index> exchange(const char* what, Index mine) override { return device_.exchange(what, mine); }
  void verify_replicated(const Tensor& t) override { device_.verify_replicated(t); }
  void check_claims(bool on) override { device_.check_claims(on); }

  void barrier() override {
    note(Collective::barrier, Tensor());
    device_.barrier();
  }
  void send(int to, const Tensor& t) override {
    note(Collective::send, t, to);
    device_.send(to, t);
  }
  Tensor receive(int from) override {
    const std::size_t place = note(Collective::send, Tensor(), from);
    std::get<Exchange>(steps[place]).receives = true;
    return note_result(place, device_.receive(from));
  }
  Future<> post_send(int to, Tensor&& t) override {
    const std::size_t place = note_posted(t, to, false);
    return {
        std::make_shared<Posted>(device_.post_send(to, std::move(t)), [this, place] { note_wait(place); }),
        [](Tensor) {}};
  }
  Future<Tensor> post_receive(int from, const Shape& shape) override {
    const std::size_t place = note_posted(Tensor(), from, true);
    return noting(place, device_.post_receive(from, shape)).then([this, place](Tensor t) {
      note_wait(place);
      return t;
    });
  }
  Future<> send_async(const Tensor& src, Tensor& dst, std::optional<int> target) override {
    const std::size_t place = note(Collective::send_async, src, target.value_or(-1));
    dst = note_result(place, std::move(dst));
    return device_.send_async(src, dst, target);
  }
  Future<Tensor> all_gather_async(Tensor&& slice, int axis) override {
    const std::size_t place = note(Collective::all_gather, slice);
    return noting(place, device_.all_gather_async(std::move(slice), axis));
  }
  Future<Tensor> all_gather_async(const Tensor& slice, int axis) override {
    const std::size_t place = note(Collective::all_gather, slice);
    return noting(place, device_.all_gather_async(slice, axis));
  }
  Future<Tensor> all_reduce_async(Tensor&& t, ReduceOp op) override {
    const std::size_t place = note(Collective::all_reduce, t);
    return noting(place, device_.all_reduce_async(std::move(t), op));
  }
  Future<Tensor> reduce_scatter_async(Tensor&& t, ReduceOp op, int axis) override {
    const std::size_t place = note(Collective::reduce_scatter, t);
    note_parts(place, t, slices(t.extent(axis), 1, num_devices()), axis);
    return noting(place, device_.reduce_scatter_async(std::move(t), op, axis));
  }
  Future<Tensor> all_to_all_async(Tensor&& t, int split_axis, int concat_axis) override {
    const std::size_t place = note(Collective::all_to_all, t);
    note_parts(place, t, slices(t.extent(split_axis), 1, num_devices()), split_axis);
    return noting(place, device_.all_to_all_async(std::move(t), split_axis, concat_axis));
  }
  Future<Tensor> all_to_all_async(Tensor&& t, const std::vector<Index>& counts, int axis) override {
    const std::size_t place = note(Collective::all_to_all, t);
    note_parts(place, t, counts, axis);
    return noting(place, device_.all_to_all_async(std::move(t), counts, axis));
  }
  Future<Tensor> broadcast_async(Tensor&& t, int root) override {
    const std::size_t place = note(Collective::broadcast, t, root);
    return noting(place, device_.broadcast_async(std::move(t), root));
  }

 private:
  /// Its place in the list.
  std::size_t note(Collective call, const Tensor& in, int peer = -1) {
    steps.emplace_back(Exchange{call, TensorMemory::data(in), nullptr, in.size(), 0, peer, false, false, {}});
    return steps.size() - 1;
  }
  void note_wait(std::size_t place) { steps.emplace_back(Wait{place}); }
  std::size_t note_posted(const Tensor& in, int peer, bool receives) {
    const std::size_t place = note(Collective::send, in, peer);
    std::get<Exchange>(steps[place]).is_posted = true;
    std::get<Exchange>(steps[place]).receives = receives;
    return place;
  }
  void note_parts(std::size_t place, const Tensor& t, std::vector<Index> counts, int axis) {
    for (Index& count : counts) count *= t.size() == 0 ? 0 : t.size() / t.extent(axis);
    std::get<Exchange>(steps[place]).counts = std::move(counts);
  }
  Tensor note_result(std::size_t place, Tensor result) {
    std::get<Exchange>(steps[place]).out = TensorMemory::data(result);
    std::get<Exchange>(steps[place]).out_size = result.size();
    return result;
  }
  /// Where a result lies is known when it is waited for.
  Future<Tensor> noting(std::size_t place, Future<Tensor> future) {
    return std::move(future).then(
        [this, place](Tensor result) { return note_result(place, std::move(result)); });
  }

  Communicator& device_;
};

Recorder* recorder = nullptr;  // while something is recorded

/// While this lives, calls go to a recorder.
struct Listening {
  explicit Listening(Recorder& to) { recorder = &to; }
  ~Listening() { recorder = nullptr; }
};

}  // namespace

std::vector<Step> record(const std::function<void()>& run) {
  Recorder here(__real__ZN5shard5worldEv());
  const Index calls_before = emu::calls_made(), flops_before = ledger().flops();
  {
    const Listening listening(here);
    run();
  }
  Index calls = 0, flops = 0;
  for (const Step& step : here.steps)
    if (const auto* p = std::get_if<Product>(&step))
      flops += product_flops(p->m, p->k, p->n);
    else if (std::holds_alternative<Exchange>(step))
      ++calls;
  const Index calls_made = emu::calls_made() - calls_before, computed = ledger().flops() - flops_before;
  if (calls != calls_made || flops != computed)
    refuse(Code::internal, "record", fmt::format("{} calls and {} operations", calls_made, computed),
           fmt::format("{} and {}", calls, flops));
  return std::move(here.steps);
}

}  // namespace shard::bench

using shard::bench::recorder;

shard::Communicator& __wrap__ZN5shard5worldEv() {
  if (recorder != nullptr) return *recorder;
  return __real__ZN5shard5worldEv();
}

void __wrap_cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                        const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  if (recorder != nullptr)
    recorder->steps.emplace_back(
        shard::bench::Product{order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc});
  __real_cblas_sgemm(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
