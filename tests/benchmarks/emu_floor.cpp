#include "tests/benchmarks/emu_floor.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "emu/host_memory.hpp"

namespace shard::bench {

namespace {

/// Everybody's number, in device order. A collective.
std::vector<int> from_all(Index mine) {
  const auto number = static_cast<int>(mine);
  std::vector<int> all(static_cast<std::size_t>(world().num_devices()));
  MPI_Allgather(&number, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
  return all;
}

void run_product(const Product& p) {
  cblas_sgemm(static_cast<CBLAS_ORDER>(p.order), static_cast<CBLAS_TRANSPOSE>(p.transpose_a),
              static_cast<CBLAS_TRANSPOSE>(p.transpose_b), p.m, p.n, p.k, p.alpha, p.a, p.row_length_a, p.b,
              p.row_length_b, p.beta, p.c, p.row_length_c);
}

}  // namespace

EmuFloor::Parts::Parts(std::vector<int> all) : counts(std::move(all)), offsets(counts.size()) {
  for (std::size_t d = 1; d < counts.size(); ++d) offsets[d] = offsets[d - 1] + counts[d - 1];
}

EmuFloor::EmuFloor(const std::vector<Step>& steps) {
  for (const Step& step : steps)
    if (const auto* p = std::get_if<Product>(&step)) {
      reserve(p->a, Index{p->m} * p->k);
      reserve(p->b, Index{p->k} * p->n);
      reserve(p->c, Index{p->m} * p->n);
    } else if (const auto* e = std::get_if<Exchange>(&step)) {
      reserve(e->in, e->in_size);
      reserve(e->out, e->out_size);
    }
  for (const Step& step : steps)
    if (const auto* p = std::get_if<Product>(&step)) {
      Product& here = std::get<Product>(steps_.emplace_back(*p));
      here.a = memory(p->a);
      here.b = memory(p->b);
      here.c = memory(p->c);
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
  if (e.call == Collective::send_async) {
    const std::vector<int> targets = from_all(e.peer);
    const auto found = std::ranges::find(targets, world().device_id());
    r.from = found == targets.end() ? MPI_PROC_NULL : static_cast<int>(found - targets.begin());
  }
  if (e.call == Collective::all_gather) r.received = Parts(from_all(e.in_size));
  if (e.call == Collective::reduce_scatter || e.call == Collective::all_to_all) {
    r.parts = Parts({e.counts.begin(), e.counts.end()});
    std::vector<int> received(e.counts.size());
    MPI_Alltoall(r.parts.counts.data(), 1, MPI_INT, received.data(), 1, MPI_INT, MPI_COMM_WORLD);
    r.received = Parts(std::move(received));
  }
  return r;
}

void EmuFloor::run_message(Raw& r) {
  const MPI_Comm all = MPI_COMM_WORLD;
  if (r.receives && r.is_posted)
    MPI_Irecv(r.out, r.out_size, MPI_FLOAT, r.from, 0, all, &r.request);
  else if (r.receives)
    MPI_Recv(r.out, r.out_size, MPI_FLOAT, r.from, 0, all, MPI_STATUS_IGNORE);
  else if (r.is_posted)
    MPI_Isend(r.in, r.in_size, MPI_FLOAT, r.to, 0, all, &r.request);
  else
    MPI_Send(r.in, r.in_size, MPI_FLOAT, r.to, 0, all);
}

void EmuFloor::run_collective(const Raw& r) {
  const MPI_Datatype number = MPI_FLOAT;
  const MPI_Comm all = MPI_COMM_WORLD;
  const Parts &parts = r.parts, &received = r.received;
  switch (r.call) {
    case Collective::barrier:
      MPI_Barrier(all);
      break;
    case Collective::send:
      break;  // in run_message
    case Collective::send_async:
      MPI_Sendrecv(r.in, r.in_size, number, r.to, 0, r.out, r.out_size, number, r.from, 0, all,
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
  }
}

void EmuFloor::run() {
  for (auto& step : steps_)
    if (const auto* p = std::get_if<Product>(&step)) {
      run_product(*p);
    } else if (const auto* w = std::get_if<Wait>(&step)) {
      MPI_Wait(&std::get<Raw>(steps_[w->posted]).request, MPI_STATUS_IGNORE);
    } else {
      Raw& r = std::get<Raw>(step);
      r.call == Collective::send ? run_message(r) : run_collective(r);
    }
}

std::unique_ptr<Floor> floor_of(const std::function<void()>& step) {
  return std::make_unique<EmuFloor>(record(step));
}

}  // namespace shard::bench
