#include "tests/equivalence/tested_options.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "tests/harness/meshes.hpp"

namespace shard::testing {

namespace {

/// "--micro-batches 5 --virtual-stages 3"
Options options_of(const std::string& text) {
  Options all;
  std::istringstream words(text);
  for (std::string name, value; words >> name >> value;) all.set(name, value);
  return all;
}

using Axes = std::vector<std::string>;

Axes axes_of(const Variant& variant, int devices) {
  const MeshShape mesh = variant.mesh(devices, Options());
  Axes names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return names;
}

/// Every factorisation of the number of devices with the axes in this order, and with these other options.
std::vector<Options> every(const Axes& order, int devices, const std::string& more = "") {
  std::vector<Options> all;
  for (const std::string& mesh : mesh_texts(order, devices))
    all.push_back(options_of("--mesh " + mesh + " " + more));
  return all;
}

std::vector<Options> every_mesh(const Variant& variant, int devices) {
  Axes axes = axes_of(variant, devices);
  std::vector<Options> all = every(axes, devices);
  std::string reversed;
  for (const std::string& axis : axes) reversed = axis + (reversed.empty() ? "" : ",") + reversed;
  if (devices > 1) all.push_back(options_of("--mesh " + reversed));
  return all;
}

std::vector<Options> square_meshes(const Variant& variant, int devices) {
  std::vector<Options> all = every_mesh(variant, devices);
  std::erase_if(all, [&](const Options& o) {
    const MeshShape mesh = variant.mesh(devices, o);
    return mesh.axes()[0].size != mesh.axes()[1].size;
  });
  return all;
}

/// Axes in three orders, each with another schedule.
std::vector<Options> pipelines_on_meshes(const Variant&, int devices) {
  std::vector<Options> all =
      every({"tensor", "data", "pipeline"}, devices, "--schedule gpipe --micro-batches 2");
  for (const Options& o :
       every({"pipeline", "tensor", "data"}, devices, "--schedule interleaved --micro-batches 3"))
    all.push_back(o);
  for (const Options& o : every({"data", "pipeline", "tensor"}, devices, "--schedule 1f1b --micro-batches 3"))
    all.push_back(o);
  all.emplace_back();
  return all;
}

/// Every factorisation once, with pieces of different sizes, and both cuts of sequences. With contiguous ones, keys also
/// go to devices that do not see them, where no fault is noticed: faults are planted on few devices.
std::vector<Options> decoders_on_meshes(const Variant& variant, int devices) {
  std::vector<Options> all = every(axes_of(variant, devices), devices);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].set("--micro-batches", std::to_string(i % 3 + 1));
    if (variant.has_option("--balance") && (i % 2 == 1 || devices < 4)) all[i].set("--balance", "zigzag");
  }
  return all;
}

/// What a variant is tested with: texts of options, or a function of the number of devices.
struct Row {
  std::string variant;
  std::vector<std::string> texts;
  std::vector<Options> (*on)(const Variant& variant, int devices) = nullptr;
};

const std::vector<Row>& rows() {
  static const std::vector<std::string> three = {"--micro-batches 1", "--micro-batches 2",
                                                 "--micro-batches 5"},
                                        whole_or_thirds = {"", "--micro-batches 3"},
                                        splits = {"--micro-batches 1", "--micro-batches 5 --split bytes",
                                                  "--micro-batches 2"};
  static const std::vector<Row> all = {
      {"accumulated", {"--micro-batches 1", "--micro-batches 3"}},
      {"bucketed", {"--bucket-bytes 1", "--bucket-bytes 300", ""}},  // one gradient, some, all
      {"1f1b", three},
      {"gpipe", three},
      {"naive", three},
      {"zero-bubble", three},
      {"interleaved", {"--micro-batches 2", "--micro-batches 5 --virtual-stages 3"}},
      {"zero1", whole_or_thirds},
      {"zero2", whole_or_thirds},
      {"zero3", whole_or_thirds},
      {"tensor", {"", "--sequence-parallel yes"}},
      {"context", {"", "--balance zigzag"}},
      {"layers", splits},
      {"data-pipeline-tensor", {}, pipelines_on_meshes},
      {"cannon", {}, square_meshes},
      {"five", {}, decoders_on_meshes},
      {"decoder-data-pipeline-tensor", {}, decoders_on_meshes},
      {"decoder-expert-data", {}, decoders_on_meshes},
  };
  return all;
}

/// The row of a variant, or of the one that a reader's own chapter was copied from: "mine-bucketed".
const Row* row_of(const std::string& name) {
  const Row* found = nullptr;
  for (const Row& row : rows())
    if ((name == row.variant || name.ends_with("-" + row.variant)) &&
        (found == nullptr || row.variant.size() > found->variant.size()))
      found = &row;
  return found;
}

}  // namespace

std::vector<Options> tested_options(const Variant& variant, int devices) {
  const Row* row = row_of(variant.name);
  if (row != nullptr && row->on != nullptr && variant.mesh) return row->on(variant, devices);
  if (variant.mesh) return every_mesh(variant, devices);
  if (row == nullptr) return {Options()};
  std::vector<Options> all;
  for (const std::string& text : row->texts) all.push_back(options_of(text));
  auto is_known = [&](const Options& o) {
    return std::ranges::all_of(o.names(), [&](const std::string& name) { return variant.has_option(name); });
  };
  return std::ranges::all_of(all, is_known) ? all : std::vector<Options>{Options()};
}

}  // namespace shard::testing
