// Compares the emulator's collectives with MPI's on the same data. Checks the order of float sums.

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {}, .processes = {1, 2, 3, 4, 5, 8});

namespace {

const std::vector<Index> sizes = {1, 2, 63, 1000, 100'003};

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::prod:
      return MPI_PROD;
    default:
      return MPI_SUM;
  }
}

/// Equal bit for bit, also in the sign of a zero.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::vector<float> mpi_all_reduce(std::vector<float> values, MPI_Op op) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, op, MPI_COMM_WORLD);
  return values;
}

std::vector<int> offsets_of(const std::vector<int>& counts) {
  std::vector<int> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  return offsets;
}

/// How many numbers device `from` sends to device `to`; for some pairs none.
int count(int from, int to, Index scale) {
  return static_cast<int>(scale * ((from + 2 * to) % 3));
}

}  // namespace

TEST_CASE("all_reduce agrees with MPI_Allreduce") {
  if (group().group_id() != 0) return;  // MPI_COMM_WORLD is the world
  for (Index size : sizes) {
    CAPTURE(size);
    const HostTensor random = reals({size}, me());
    const HostTensor whole = integers({size}, me());
    for (ReduceOp op : {ReduceOp::max, ReduceOp::min})
      CHECK(same_bits(engine().all_reduce(to_device(random), op).to_host(),
                      mpi_all_reduce(random.values, mpi_op(op))));
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
      const HostTensor expected{{size}, mpi_all_reduce(whole.values, mpi_op(op))};
      CHECK(difference(engine().all_reduce(to_device(whole), op), expected) == "");
    }
  }
}

TEST_CASE("reduce_scatter agrees with MPI_Reduce_scatter") {
  if (group().group_id() != 0) return;  // MPI_COMM_WORLD is the world
  for (Index size : sizes) {
    CAPTURE(size);
    const HostTensor whole = integers({size}, me());
    std::vector<int> counts;
    for (int d = 0; d < devices(); ++d) counts.push_back(static_cast<int>(part(size, devices(), d).size()));
    const int mine = counts[static_cast<std::size_t>(me())];
    HostTensor expected{{mine}, std::vector<float>(static_cast<std::size_t>(mine))};
    MPI_Reduce_scatter(whole.values.data(), expected.values.data(), counts.data(), MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD);
    CHECK(difference(engine().reduce_scatter(to_device(whole)), expected) == "");
  }
}

TEST_CASE("all_gather agrees with MPI_Allgatherv") {
  if (group().group_id() != 0) return;  // MPI_COMM_WORLD is the world
  for (Index size : sizes) {
    CAPTURE(size);
    std::vector<int> counts;
    for (int d = 0; d < devices(); ++d) counts.push_back(static_cast<int>(size * ((d + 2) % 3)));
    const std::vector<int> offsets = offsets_of(counts);
    const HostTensor slice = reals({counts[static_cast<std::size_t>(me())]}, me());
    std::vector<float> expected(static_cast<std::size_t>(offsets.back() + counts.back()));
    MPI_Allgatherv(slice.values.data(), static_cast<int>(slice.values.size()), MPI_FLOAT, expected.data(),
                   counts.data(), offsets.data(), MPI_FLOAT, MPI_COMM_WORLD);
    CHECK(same_bits(engine().all_gather(to_device(slice)).to_host(), expected));
  }
}

TEST_CASE("all_to_all with counts agrees with MPI_Alltoallv") {
  if (group().group_id() != 0) return;  // MPI_COMM_WORLD is the world
  for (Index size : sizes) {
    CAPTURE(size);
    std::vector<int> sent, received;
    for (int d = 0; d < devices(); ++d) {
      sent.push_back(count(me(), d, size));
      received.push_back(count(d, me(), size));
    }
    const std::vector<int> sent_at = offsets_of(sent), received_at = offsets_of(received);
    const HostTensor mine = reals({sent_at.back() + sent.back()}, me());
    std::vector<float> expected(static_cast<std::size_t>(received_at.back() + received.back()));
    MPI_Alltoallv(mine.values.data(), sent.data(), sent_at.data(), MPI_FLOAT, expected.data(),
                  received.data(), received_at.data(), MPI_FLOAT, MPI_COMM_WORLD);
    const std::vector<Index> counts(sent.begin(), sent.end());
    CHECK(same_bits(engine().all_to_all(to_device(mine), counts).to_host(), expected));
  }
}

TEST_CASE("broadcast agrees with MPI_Bcast") {
  if (group().group_id() != 0) return;  // MPI_COMM_WORLD is the world
  for (Index size : sizes)
    for (int root = 0; root < devices(); ++root) {
      CAPTURE(size, root);
      const HostTensor mine = reals({size}, me());
      std::vector<float> expected = mine.values;
      MPI_Bcast(expected.data(), static_cast<int>(size), MPI_FLOAT, root, MPI_COMM_WORLD);
      CHECK(same_bits(engine().broadcast(to_device(mine), root).to_host(), expected));
    }
}

TEST_CASE("a float sum comes out the same, bit for bit, each time and on every device") {
  if (group().group_id() != 0) return;  // MPI_COMM_WORLD is the world
  for (Index size : sizes) {
    CAPTURE(size);
    const HostTensor random = reals({size}, me());
    const std::vector<float> once = engine().all_reduce(to_device(random)).to_host();
    CHECK(same_bits(engine().all_reduce(to_device(random)).to_host(), once));
    CHECK(same_bits(engine().broadcast(Tensor::from_host({size}, once), devices() - 1).to_host(), once));
    const std::vector<float> part_once = engine().reduce_scatter(to_device(random)).to_host();
    CHECK(same_bits(engine().reduce_scatter(to_device(random)).to_host(), part_once));
  }
}

// Chunk k starts on device k+1 and travels right until it reaches device k.
TEST_CASE("a float sum is made in the order of the ring") {
  if (group().group_id() != 0) return;  // MPI_COMM_WORLD is the world
  for (Index size : sizes)
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod}) {
      CAPTURE(size, name(op));
      const std::vector<HostTensor> inputs = on_each(reals, {size});
      HostTensor expected{{size}, {}};
      for (int k = 0; k < devices(); ++k) {
        std::vector<HostTensor> in_order;
        for (int step = 1; step <= devices(); ++step)
          in_order.push_back(
              sliced(inputs[static_cast<std::size_t>((k + step) % devices())], 0, part(size, devices(), k)));
        std::ranges::copy(reduced(in_order, op).values, std::back_inserter(expected.values));
      }
      const std::vector<float> sum = engine().all_reduce(to_device(reals({size}, me())), op).to_host();
      CHECK(same_bits(sum, expected.values));
      const HostTensor slice = sliced(expected, 0, part(size, devices(), me()));
      CHECK(same_bits(engine().reduce_scatter(to_device(reals({size}, me())), op).to_host(), slice.values));
    }
}
