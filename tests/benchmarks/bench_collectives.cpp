/// Compares every collective with raw MPI on the same bytes, along axis 0 and out of place.
///
/// For a fair comparison, both sides find argument and result in the same memory at every call, and the
/// argument is written before each call, outside the time. (Large messages are copied by pages, and the pages
/// of one block may be faster than those of another.) Neither side changes the argument:
///   - MPI_Allreduce and MPI_Reduce_scatter out of place first copy it, and work on the copy. Our calls work
///     in their argument's memory, so they get a clone, and the time of cloning counts.
///   - The other calls only read it, so ours get the argument itself, and no clone.
/// A result is the block that the emulator's store has freed last. Allocations, checks and agreements within
/// the call count.

#include <mpi.h>

#include <algorithm>

#include "emu/operations/host_memory.hpp"
#include "engine/proof/costs.hpp"
#include "tests/benchmarks/bench.hpp"

namespace shard::bench {

namespace {

const MPI_Comm comm = MPI_COMM_WORLD;

/// The memory of one comparison, and the counts of the parts.
struct Memory {
  Communicator& group;
  Tensor source;    ///< written to the argument before each call
  Tensor argument;  ///< of both sides
  Tensor result;    ///< of MPI; ours uses the same memory
  Index result_size;
  std::vector<int> counts, offsets;                    ///< of the parts of the whole tensor
  std::vector<int> received_counts, received_offsets;  ///< in an all-to-all: the parts for this device

  Memory(Communicator& all, Index size, Index size_of_result, Index whole)
      : group(all), source(random_tensor({size})), argument(source.clone()), result_size(size_of_result) {
    const int n = group.num_devices();
    const auto mine = static_cast<int>(part(whole, n, me()).size());
    for (int d = 0; d < n; ++d) {
      counts.push_back(static_cast<int>(part(whole, n, d).size()));
      offsets.push_back(static_cast<int>(part(whole, n, d).begin));
      received_counts.push_back(mine);
      received_offsets.push_back(d * mine);
    }
  }

  void prepare_ours() {
    std::ranges::copy(TensorMemory::span(std::as_const(source)), TensorMemory::data(argument));
    result = Tensor();  // back to the store, for our result
  }
  void prepare_mpi() {
    std::ranges::copy(TensorMemory::span(std::as_const(source)), TensorMemory::data(argument));
    result = Tensor::uninitialized({result_size});
  }
  /// A second handle to our argument, to be consumed. The memory stays for the next call.
  Tensor handed_over() const { return TensorMemory::share(argument); }
  const float* in() const { return TensorMemory::data(argument); }
  float* out() { return TensorMemory::data(result); }
  int in_size() const { return static_cast<int>(argument.size()); }

  int me() const { return group.device_id(); }
  int right() const { return (me() + 1) % group.num_devices(); }
  int left() const { return (me() + group.num_devices() - 1) % group.num_devices(); }
};

enum class Size { none, mine, whole, mine_from_each };

Index elements_of(Size size, Index whole, const Communicator& group) {
  const Index mine = part(whole, group.num_devices(), group.device_id()).size();
  switch (size) {
    case Size::none:
      return 0;
    case Size::mine:
      return mine;
    case Size::whole:
      return whole;
    default:
      return mine * group.num_devices();
  }
}

/// A call both ways.
struct Call {
  const char* name;
  const char* mpi_name;
  Size argument, result;
  void (*ours)(Memory&);
  void (*mpi)(Memory&);
  int least_devices = 1;
  int messages = 1;  ///< sent one after the other in a call; the time is that of one
};

/// Sends from device 0 to device 1, and back.
void ping(Memory& m) {
  if (m.me() == 0) m.group.send(1, m.argument);
  const Tensor received = m.me() <= 1 ? m.group.receive(1 - m.me()) : Tensor();
  if (m.me() == 1) m.group.send(0, received);
}
void mpi_ping(Memory& m) {
  if (m.me() == 0) MPI_Ssend(m.in(), m.in_size(), MPI_FLOAT, 1, 0, comm);
  if (m.me() <= 1) MPI_Recv(m.out(), m.in_size(), MPI_FLOAT, 1 - m.me(), 0, comm, MPI_STATUS_IGNORE);
  if (m.me() == 1) MPI_Ssend(m.out(), m.in_size(), MPI_FLOAT, 0, 0, comm);
}

const std::vector<Call> calls = {
    {"all_reduce", "MPI_Allreduce", Size::whole, Size::whole,
     [](Memory& m) { m.group.all_reduce_async(m.argument.clone(), ReduceOp::sum).get(); },
     [](Memory& m) { MPI_Allreduce(m.in(), m.out(), m.in_size(), MPI_FLOAT, MPI_SUM, comm); }},
    {"all_gather", "MPI_Allgatherv", Size::mine, Size::whole,
     [](Memory& m) { m.group.all_gather_async(m.handed_over(), 0).get(); },
     [](Memory& m) {
       MPI_Allgatherv(m.in(), m.in_size(), MPI_FLOAT, m.out(), m.counts.data(), m.offsets.data(), MPI_FLOAT,
                      comm);
     }},
    {"reduce_scatter", "MPI_Reduce_scatter", Size::whole, Size::mine,
     [](Memory& m) { m.group.reduce_scatter_async(m.argument.clone(), ReduceOp::sum, 0).get(); },
     [](Memory& m) { MPI_Reduce_scatter(m.in(), m.out(), m.counts.data(), MPI_FLOAT, MPI_SUM, comm); }},
    {"all_to_all", "MPI_Alltoallv", Size::whole, Size::mine_from_each,
     [](Memory& m) { m.group.all_to_all_async(m.handed_over(), 0, 0).get(); },
     [](Memory& m) {
       MPI_Alltoallv(m.in(), m.counts.data(), m.offsets.data(), MPI_FLOAT, m.out(), m.received_counts.data(),
                     m.received_offsets.data(), MPI_FLOAT, comm);
     }},
    // On both sides, the root's argument is its result.
    {"broadcast", "MPI_Bcast", Size::whole, Size::whole,
     [](Memory& m) { m.group.broadcast_async(m.handed_over(), 0).get(); },
     [](Memory& m) {
       float* tensor = m.me() == 0 ? TensorMemory::data(m.argument) : m.out();
       MPI_Bcast(tensor, m.in_size(), MPI_FLOAT, 0, comm);
     }},
    {"send, receive", "MPI_Ssend, MPI_Recv", Size::whole, Size::whole, ping, mpi_ping, 2, 2},
    {"send_async", "MPI_Sendrecv", Size::whole, Size::whole,
     [](Memory& m) {
       Tensor received = Tensor::uninitialized(m.argument.shape());
       m.group.send_async(m.argument, received, m.right()).wait();
     },
     [](Memory& m) {
       MPI_Sendrecv(m.in(), m.in_size(), MPI_FLOAT, m.right(), 0, m.out(), m.in_size(), MPI_FLOAT, m.left(),
                    0, comm, MPI_STATUS_IGNORE);
     }},
    {"barrier", "MPI_Barrier", Size::none, Size::none, [](Memory& m) { m.group.barrier(); },
     [](Memory&) { MPI_Barrier(comm); }}};

/// "4", "64k", "2M".
std::string bytes_text(Index bytes) {
  constexpr Index k = 1024;
  if (bytes >= k * k && bytes % (k * k) == 0) return fmt::format("{}M", bytes / (k * k));
  return bytes >= k && bytes % k == 0 ? fmt::format("{}k", bytes / k) : fmt::format("{}", bytes);
}

void measure_call(Communicator& group, const Call& call, Index bytes, const Options& options,
                  Results& results) {
  const Index whole = bytes / bytes_per_element;
  Memory m(group, elements_of(call.argument, whole, group), elements_of(call.result, whole, group), whole);
  const Side ours = {[&] { m.prepare_ours(); }, [&] { call.ours(m); }};
  const Side mpi = {[&] { m.prepare_mpi(); }, [&] { call.mpi(m); }};
  const Pair pair = measure(ours, mpi, options, call.messages);
  results.print(fmt::format("{:<14} {:<19} {:>5} {} {} {:>6.2f} {:>+9.2f}\n", call.name, call.mpi_name,
                            bytes_text(bytes), pair.ours.text(), pair.reference.text(), pair.ratio(),
                            pair.difference()));
  results.add("collectives", {{"call", call.name},
                              {"mpi_call", call.mpi_name},
                              {"bytes", bytes},
                              {"ratio", pair.ratio()},
                              {"more_us", pair.difference()},
                              {"times", pair}});
}

}  // namespace

void measure_all(Communicator& world, const Options& options, Results& results) {
  results.print(fmt::format(
      "\nCollectives. Bytes of the whole tensor; medians in microseconds, distance of the quartiles\n"
      "{:<14} {:<19} {:>5} {:>15} {:>15} {:>6} {:>9}\n",
      "call", "raw MPI", "bytes", "ours", "raw MPI", "ratio", "more"));
  for (const Call& call : calls) {
    if (world.num_devices() < call.least_devices) continue;
    const bool has_content = call.argument != Size::none;
    for (Index bytes : has_content ? options.bytes : std::vector<Index>{0})
      measure_call(world, call, bytes, options, results);
  }
}

}  // namespace shard::bench
