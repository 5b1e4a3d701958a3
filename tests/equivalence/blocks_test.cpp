// What a device sends where both axes of a mesh cut every matrix, by the closed forms, which each run is held
// against: less than a device that gathers rows and columns before each product.

#include "09_mesh/blocks_costs.hpp"
#include "09_mesh/cannon_costs.hpp"
#include "09_mesh/gather_both_costs.hpp"
#include "09_mesh/summa_costs.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

using namespace meshes;

namespace {

/// Bytes that a device sends in a step of this network.
template <class Form>
Index bytes(const Workload& network, const MeshShape& mesh, int device) {
  const Setting setting{&network, 64, false, mesh.num_devices(), device};
  return blocks_costs<Form>(setting, mesh).total().bytes;
}

template <class Form>
Index bytes_of_all(const Workload& network, const MeshShape& mesh) {
  Index sum = 0;
  for (int device = 0; device < mesh.num_devices(); ++device) sum += bytes<Form>(network, mesh, device);
  return sum;
}

/// The same by the page's formula: each product moves B K elements along rows of devices and K N along
/// columns, to every other device there, and the output is gathered once. Batch 64, 2 layers of 64 -> 128.
Index by_formula(Index rows, Index columns) {
  constexpr Index B = 64, D = 64, F = 128;
  const Index first = B * D * (columns - 1) + D * F * (rows - 1);   // (B, D) times (D, F)
  const Index second = B * F * (columns - 1) + F * D * (rows - 1);  // (B, F) times (F, D)
  return (2 * first + 3 * second + B * D * (columns - 1)) * bytes_per_element;
}

}  // namespace

TEST_CASE("SUMMA and Cannon send what the page's formula says, over all devices") {
  const auto network = mlp().sized(2, 64, 128);
  for (auto [rows, columns] : {std::pair(2, 2), {2, 3}, {3, 2}, {3, 3}, {1, 4}, {4, 1}}) {
    const MeshShape mesh({{"rows", rows}, {"columns", columns}});
    CAPTURE(mesh.describe());
    CHECK(bytes_of_all<SummaCosts>(*network, mesh) == by_formula(rows, columns));
    if (rows == columns) CHECK(bytes_of_all<CannonCosts>(*network, mesh) == by_formula(rows, columns));
  }
}

TEST_CASE("SUMMA and Cannon send less than a product that gathers both factors, on every device") {
  const auto network = mlp().sized(2, 64, 128);
  for (auto [rows, columns] : {std::pair(2, 2), {2, 3}, {3, 3}})
    for (int device = 0; device < rows * columns; ++device) {
      const MeshShape mesh({{"rows", rows}, {"columns", columns}});
      CAPTURE(mesh.describe(), device);
      const Index naive = bytes<GatherBothCosts>(*network, mesh, device);
      CHECK(bytes<SummaCosts>(*network, mesh, device) < naive);
      if (rows == columns) CHECK(bytes<CannonCosts>(*network, mesh, device) < naive);
    }
}

}  // namespace shard::testing
