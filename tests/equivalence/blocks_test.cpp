// What a device sends where both axes of a mesh cut every matrix, by the closed forms, which each run is held
// against: less than a device that gathers rows and columns before each product.

#include "09_mesh/blocks_costs.hpp"
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

}  // namespace

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
