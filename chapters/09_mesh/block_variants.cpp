#include <fmt/format.h>

#include "blocks.hpp"
#include "cannon.hpp"
#include "gather_both.hpp"
#include "mesh_option.hpp"
#include "summa.hpp"
#include "variants.hpp"

namespace shard::meshes {

namespace {

/// \throws Error usage unless both axes have as many devices
void require_square(const MeshShape& mesh) {
  if (mesh.size("rows") != mesh.size("columns"))
    throw Error(Code::usage,
                fmt::format("mesh: cannon: expected as many devices along rows as along columns, given {}",
                            mesh.describe()));
}

Variant on_squares(const MeshOption& mesh) {
  Variant v =
      mesh.variant<Blocks<Cannon>>("cannon", "each matrix in blocks, which go around on a square mesh");
  v.tested_on = [mesh, every = v.tested_on](int devices) {
    std::vector<Options> squares;
    for (const Options& o : every(devices))
      if (const MeshShape on = mesh.shape(devices, o); on.size("rows") == on.size("columns"))
        squares.push_back(o);
    return squares;
  };
  return that_requires(std::move(v), [mesh](int devices, const Workload&, const Options& o) {
    require_square(mesh.shape(devices, o));
  });
}

}  // namespace

std::vector<Variant> variants_of_blocks() {
  const MeshOption mesh(BlockAxes::names());
  return {mesh.variant<Blocks<Summa>>("summa",
                                      "each matrix in blocks: panels go along rows and columns of devices"),
          on_squares(mesh),
          mesh.variant<Blocks<GatherBoth>>(
              "gather-both", "each matrix in blocks: a product gathers rows and columns first")};
}

}  // namespace shard::meshes
