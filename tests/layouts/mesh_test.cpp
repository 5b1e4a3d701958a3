// Meshes: the groups along their axes, and the texts of --mesh.

#include "engine/layouts/mesh.hpp"

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"
#include "tests/harness/meshes.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {3}, .on_cuda = {3});

namespace {

const std::vector<std::string> known = {"data", "tensor", "shard"};

std::string described(const std::string& text, int on) {
  return mesh_shape(text, known, on).describe();
}
/// The message with which a mesh is refused, if it is an error of usage.
std::string refused(const std::function<void()>& action) {
  const Refusal refusal = testing::refusal(action);
  CHECK(refusal.code == static_cast<int>(Code::usage));
  CHECK_THAT(refusal.message, !contains("\n"));
  return refusal.message;
}

}  // namespace

TEST_CASE("the last axis varies fastest") {
  const MeshShape shape({{"data", 2}, {"shard", 2}, {"tensor", 3}});
  CHECK(shape.num_devices() == 12);
  CHECK(shape.place("tensor", 7) == 1);
  CHECK(shape.place("shard", 7) == 0);
  CHECK(shape.place("data", 7) == 1);
  CHECK(shape.size("tensor") == 3);
}

TEST_CASE("an axis is the group of the devices that differ on it only, in the order of their places") {
  for (const std::string& text : mesh_texts({"data", "tensor"}, devices())) {
    CAPTURE(text);
    const MeshShape shape = mesh_shape(text, {"data", "tensor"}, devices());
    const Mesh mesh(group(), shape);
    const int columns = shape.size("tensor");
    CHECK(mesh.place("data") == me() / columns);
    CHECK(mesh.place("tensor") == me() % columns);
    std::vector<int> row, column;
    for (int d = 0; d < devices(); ++d) {
      if (d / columns == me() / columns) row.push_back(id(d));
      if (d % columns == me() % columns) column.push_back(id(d));
    }
    CHECK(mesh.axis("tensor").members() == row);
    CHECK(mesh.axis("data").members() == column);
    CHECK(mesh.axis("data").device_id() == mesh.place("data"));
    CHECK(mesh.axis("tensor").device_id() == mesh.place("tensor"));
  }
}

TEST_CASE("two axes join, and the last that is given varies fastest") {
  for (const std::string& text : mesh_texts({"data", "shard", "tensor"}, devices())) {
    CAPTURE(text);
    Mesh mesh(group(), mesh_shape(text, known, devices()));
    for (const MeshAxis& axis : mesh.shape().axes()) CHECK(mesh.axis(axis.name).num_devices() == axis.size);
    Communicator& joined = mesh.axes({"tensor", "data"});
    CHECK(joined.num_devices() == mesh.size("data") * mesh.size("tensor"));
    CHECK(joined.device_id() == mesh.place("tensor") * mesh.size("data") + mesh.place("data"));
    CHECK(&mesh.axes({"tensor", "data"}) == &joined);
    const std::vector<Index> shards = joined.exchange("shard", mesh.place("shard"));
    CHECK(shards == std::vector<Index>(shards.size(), mesh.place("shard")));
  }
}

TEST_CASE("a mesh that does not fit is refused in one line of usage") {
  auto made = [](std::vector<MeshAxis> axes) { return refused([&] { Mesh(group(), std::move(axes)); }); };
  const std::string n = std::to_string(devices());
  CHECK(made({{"data", devices() + 1}, {"tensor", 1}}) ==
        "mesh: expected sizes whose product is the number of devices, " + n +
            ", given data=" + std::to_string(devices() + 1) + ",tensor=1");
  CHECK(made({{"data", devices()}, {"data", 1}}) == "mesh: expected each axis once, given data twice");
  CHECK(made({{"data", devices()}, {"tensor", 0}}) ==
        "mesh: expected a size of 1 or more for tensor, given 0");
  Mesh mesh(group(), {{"data", devices()}});
  const std::string unknown = "mesh: expected an axis of data=" + n + ", given tensor";
  CHECK(refused([&] { mesh.axis("tensor"); }) == unknown);
  CHECK(refused([&] { mesh.axes({"data", "tensor"}); }) == unknown);
  CHECK(refused([&] { mesh.size("tensor"); }) == unknown);
  CHECK(refused([&] { mesh.place("tensor"); }) == unknown);
  CHECK(refused([&] { mesh.axes({"data", "data"}); }) == "mesh: expected each axis once, given data twice");
}

TEST_CASE("devices that do not make the same mesh hear of it") {
  if (devices() == 1) return;
  const std::string n = std::to_string(devices());
  const Refusal shapes = refusal([&] {
    Mesh(group(), {{"data", me() == 1 ? 1 : devices()}, {"tensor", me() == 1 ? devices() : 1}});
  });
  CHECK(shapes.code == static_cast<int>(Code::mismatch));
  CHECK_THAT(shapes.message, contains("the mesh data=" + n + ",tensor=1 along data"));
  CHECK_THAT(shapes.message, contains("calls an exchange of \"the mesh data=1,tensor=" + n));
  Mesh mesh(group(), {{"data", devices()}, {"shard", 1}, {"tensor", 1}});
  const Refusal axes = refusal([&] { mesh.axes({"data", me() == 1 ? "shard" : "tensor"}); });
  CHECK(axes.code == static_cast<int>(Code::mismatch));
  CHECK_THAT(axes.message, contains("along data,shard"));
}

TEST_CASE("--mesh: sizes as they are given, and the rest as even as possible, larger ones first") {
  CHECK(described("data=2,tensor=3", 6) == "data=2,tensor=3,shard=1");
  CHECK(described("tensor=3,data=2", 6) == "tensor=3,data=2,shard=1");
  CHECK(described("data,tensor", 6) == "data=3,tensor=2,shard=1");
  CHECK(described("tensor,data", 8) == "tensor=4,data=2,shard=1");
  CHECK(described("data,tensor", 7) == "data=7,tensor=1,shard=1");
  CHECK(described("data,tensor,shard", 20) == "data=5,tensor=2,shard=2");
  CHECK(described("data,tensor=2", 12) == "data=6,tensor=2,shard=1");
  CHECK(described("data,tensor=2,shard", 12) == "data=3,tensor=2,shard=2");
  CHECK(described("shard", 5) == "shard=5,data=1,tensor=1");
  CHECK(mesh_texts({"data", "tensor"}, 4) ==
        std::vector<std::string>{"data=1,tensor=4", "data=2,tensor=2", "data=4,tensor=1"});
}
