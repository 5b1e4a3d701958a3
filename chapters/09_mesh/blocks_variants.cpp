#include "blocks_variants.hpp"

#include <fmt/format.h>

#include "blocks.hpp"
#include "blocks_costs.hpp"
#include "cannon.hpp"
#include "gather_both.hpp"
#include "summa.hpp"

namespace shard::meshes {

namespace {

const std::vector<std::string> rows_and_columns = BlockAxes::names();
const Option<std::string> block_mesh = mesh_option(rows_and_columns);

MeshShape any_shape(int devices, const Options& options) {
  return mesh_shape(options[block_mesh], rows_and_columns, devices);
}

/// \throws Error usage unless both axes have as many devices
MeshShape square_shape(int devices, const Options& options) {
  const MeshShape mesh = any_shape(devices, options);
  if (mesh.size("rows") != mesh.size("columns"))
    throw Error(Code::usage,
                fmt::format("mesh: cannon: expected as many devices along rows as along columns, given {}",
                            mesh.describe()));
  return mesh;
}

using ShapeOf = MeshShape (*)(int devices, const Options& options);

/// Every factorisation of the number of devices that `shape_of` takes. In one of them, columns vary slower.
template <ShapeOf shape_of>
std::vector<Options> meshes_to_test(int devices) {
  std::vector<std::string> texts = mesh_texts({"rows", "columns"}, devices);
  texts.push_back("columns,rows");
  texts.push_back("rows,columns");
  std::vector<Options> all;
  for (const std::string& text : texts) {
    const Options options = Options().with(block_mesh, text);
    try {
      shape_of(devices, options);
      all.push_back(options);
    } catch (const Error&) {  // not a square
    }
  }
  return all;
}

template <class Product, class Form, ShapeOf shape_of>
Variant variant(const std::string& name, const std::string& summary) {
  return {.name = name,
          .summary = summary,
          .make =
              [](Communicator& group, const Workload&, const Options& o) {
                return std::make_unique<Blocks<Product>>(group, shape_of(group.num_devices(), o));
              },
          .costs = [](const Setting& s,
                      const Options& o) { return blocks_costs<Form>(s, shape_of(s.devices, o)); },
          .options = {block_mesh},
          .tested_on = meshes_to_test<shape_of>,
          .require = [](int devices, const Workload&, const Options& o) { shape_of(devices, o); }};
}

}  // namespace

std::vector<Variant> with_blocks(std::vector<Variant> others) {
  others.push_back(variant<Summa, SummaCosts, any_shape>(
      "summa", "each matrix in blocks: panels go along rows and columns of devices"));
  others.push_back(variant<Cannon, CannonCosts, square_shape>(
      "cannon", "each matrix in blocks, which go around on a square mesh"));
  others.push_back(variant<GatherBoth, GatherBothCosts, any_shape>(
      "gather-both", "each matrix in blocks: a product gathers rows and columns first"));
  return others;
}

}  // namespace shard::meshes
