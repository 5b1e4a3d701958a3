#include "tests/benchmarks/emu_floor.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "emu/operations/host_memory.hpp"

namespace shard::bench {

namespace {

/// The number of every device, in the group's order. A collective.
std::vector<int> from_all(MPI_Comm group, Index mine) {
  const auto number = static_cast<int>(mine);
  int size = 0;
  MPI_Comm_size(group, &size);
  std::vector<int> all(static_cast<std::size_t>(size));
  MPI_Allgather(&number, 1, MPI_INT, all.data(), 1, MPI_INT, group);
  return all;
}

/// The device that sends to this one, which sends to `to`. A collective.
int source_of_mine(MPI_Comm group, int to) {
  int me = 0;
  MPI_Comm_rank(group, &me);
  const std::vector<int> targets = from_all(group, to);
  const auto found = std::ranges::find(targets, me);
  return found == targets.end() ? MPI_PROC_NULL : static_cast<int>(found - targets.begin());
}

/// What is installed, each with its best kernels. Apart from the program's own, so that what a user chooses for the
/// program changes no floor.
const std::vector<emu::ProductLibrary>& installed_libraries() {
  static const auto* all = [] {
    auto* found = new std::vector<emu::ProductLibrary>{emu::product_libraries()};
    std::string remark;
    for (const std::string& file : emu::known_libraries()) {
      const std::optional<emu::ProductLibrary> library = emu::with_best_kernels(file, remark, /*apart=*/true);
      const bool is_new =
          library && std::ranges::find(*found, library->text(), &emu::ProductLibrary::text) == found->end();
      if (is_new && is_exact(*library)) found->push_back(*library);
    }
    return found;
  }();
  return *all;
}

/// The installed library that makes this product fastest, in the best of a few calls.
const emu::ProductLibrary& fastest_library(const emu::MatrixProduct& product) {
  const emu::ProductLibrary* fastest = nullptr;
  auto least = std::chrono::steady_clock::duration::max();
  for (const emu::ProductLibrary& library : installed_libraries())
    for (int call = 0; call < 4; ++call) {  // the first one may prepare kernels
      const auto start = std::chrono::steady_clock::now();
      library.multiply(product);
      const auto taken = std::chrono::steady_clock::now() - start;
      if (call == 0 || taken >= least) continue;
      least = taken;
      fastest = &library;
    }
  return *fastest;
}

}  // namespace

EmuFloor::Parts::Parts(std::vector<int> all) : counts(std::move(all)), offsets(counts.size()) {
  for (std::size_t d = 1; d < counts.size(); ++d) offsets[d] = offsets[d - 1] + counts[d - 1];
}

EmuFloor::EmuFloor(const Steps& steps) {
  for (const auto& step : steps)
    if (const auto* p = std::get_if<Product>(&step)) {
      reserve(p->a, Index{p->m} * p->k);
      reserve(p->b, Index{p->k} * p->n);
      reserve(p->c, Index{p->m} * p->n);
    } else if (const auto* e = std::get_if<Exchange>(&step)) {
      reserve(e->in, e->in_size);
      reserve(e->out, e->out_size);
    }
  for (const auto& step : steps)
    if (const auto* p = std::get_if<Product>(&step)) {
      const emu::MatrixProduct raw{
          p->a_is_transposed, p->b_is_transposed, p->m,    p->n,        p->k, memory(p->a), p->row_length_a,
          memory(p->b),       p->row_length_b,    p->keep, memory(p->c)};
      steps_.emplace_back(RawProduct{raw, fastest_of(raw)});
    } else if (const auto* e = std::get_if<Exchange>(&step)) {
      steps_.emplace_back(raw(*e));
    } else {
      steps_.emplace_back(std::get<Wait>(step));
    }
}

void EmuFloor::reserve(const float* recorded, Index elements) {
  Tensor& t = memory_[recorded];
  if (t.size() < elements) t = random_tensor({elements});
}

float* EmuFloor::memory(const float* recorded) {
  return TensorMemory::data(memory_.at(recorded));
}

void EmuFloor::prepare() {
  for (auto& [recorded, t] : memory_)
    if (t.size() > 0 && !(std::abs(*TensorMemory::data(t)) < 1e15F))
      std::ranges::fill(TensorMemory::span(t), 1.0F);
}

EmuFloor::Raw EmuFloor::raw(const Exchange& e) {
  const int peer = e.peer < 0 ? MPI_PROC_NULL : e.peer;
  Raw r{e.call,
        e.comm,
        e.receives,
        e.is_posted,
        memory(e.in),
        memory(e.out),
        static_cast<int>(e.in_size),
        static_cast<int>(e.out_size),
        peer,
        peer,
        Parts(),
        Parts(),
        MPI_REQUEST_NULL};
  if (e.call == Collective::send_async) r.from = source_of_mine(e.comm, e.peer);
  if (e.call == Collective::all_gather) r.received = Parts(from_all(e.comm, e.in_size));
  if (e.call == Collective::reduce_scatter || e.call == Collective::all_to_all) {
    r.parts = Parts({e.counts.begin(), e.counts.end()});
    std::vector<int> received(e.counts.size());
    MPI_Alltoall(r.parts.counts.data(), 1, MPI_INT, received.data(), 1, MPI_INT, e.comm);
    r.received = Parts(std::move(received));
  }
  return r;
}

const emu::ProductLibrary* EmuFloor::fastest_of(const emu::MatrixProduct& p) {
  const auto [found, is_new] =
      fastest_.try_emplace({p.a_is_transposed, p.b_is_transposed, p.m, p.n, p.k}, nullptr);
  if (is_new) found->second = &fastest_library(p);
  return found->second;
}

std::string EmuFloor::products_by() const {
  std::map<std::string, double> operations;  // of each library
  for (const auto& step : steps_)
    if (const auto* p = std::get_if<RawProduct>(&step))
      operations[p->library->text()] += 2.0 * p->product.m * p->product.n * p->product.k;
  if (operations.empty()) return "no products";
  return std::ranges::max_element(operations, {}, [](const auto& o) { return o.second; })->first;
}

void EmuFloor::run_message(Raw& r) {
  if (r.receives && r.is_posted)
    MPI_Irecv(r.out, r.out_size, MPI_FLOAT, r.from, 0, r.comm, &r.request);
  else if (r.receives)
    MPI_Recv(r.out, r.out_size, MPI_FLOAT, r.from, 0, r.comm, MPI_STATUS_IGNORE);
  else if (r.is_posted)
    MPI_Isend(r.in, r.in_size, MPI_FLOAT, r.to, 0, r.comm, &r.request);
  else
    MPI_Send(r.in, r.in_size, MPI_FLOAT, r.to, 0, r.comm);
}

void EmuFloor::run_collective(const Raw& r) {
  const MPI_Datatype number = MPI_FLOAT;
  const MPI_Comm all = r.comm;
  const Parts &parts = r.parts, &received = r.received;
  switch (r.call) {
    case Collective::barrier:
      MPI_Barrier(all);
      break;
    case Collective::send_async:
      MPI_Sendrecv(r.in, r.in_size, number, r.to, 0, r.out, r.out_size, number, r.from, 0, r.comm,
                   MPI_STATUS_IGNORE);
      break;
    case Collective::all_gather:
      MPI_Allgatherv(r.in, r.in_size, number, r.out, received.counts.data(), received.offsets.data(), number,
                     all);
      break;
    case Collective::all_reduce:
      MPI_Allreduce(MPI_IN_PLACE, r.out, r.out_size, number, MPI_SUM, all);
      break;
    case Collective::reduce_scatter:
      MPI_Reduce_scatter(r.in, r.out, parts.counts.data(), number, MPI_SUM, all);
      break;
    case Collective::all_to_all:
      MPI_Alltoallv(r.in, parts.counts.data(), parts.offsets.data(), number, r.out, received.counts.data(),
                    received.offsets.data(), number, all);
      break;
    case Collective::broadcast:
      MPI_Bcast(r.out, r.out_size, number, r.to, all);
      break;
    default:
      break;  // a message, in run_message, or what moves no tensor
  }
}

void EmuFloor::run() {
  for (auto& step : steps_)
    if (const auto* p = std::get_if<RawProduct>(&step)) {
      p->library->multiply(p->product);
    } else if (const auto* w = std::get_if<Wait>(&step)) {
      MPI_Wait(&std::get<Raw>(steps_[w->posted]).request, MPI_STATUS_IGNORE);
    } else {
      Raw& r = std::get<Raw>(step);
      r.call == Collective::send ? run_message(r) : run_collective(r);
    }
}

std::unique_ptr<Floor> EmuRecorder::floor_of(const std::function<void()>& step) {
  return std::make_unique<EmuFloor>(record(step));
}

std::unique_ptr<Recorder> make_recorder(Communicator& group) {
  return std::make_unique<EmuRecorder>(group);
}

}  // namespace shard::bench
