/// Chapter 00: the output of a scene with a wrong value or figure, and of drawings wider than the page.

#include <algorithm>
#include <sstream>

#include "00_collectives/scene.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {3});

using namespace primer;

namespace {

/// A scene with this tensor on each device, where ones are expected.
bool is_right(const Shape& shape, std::vector<float> values) {
  Scene scene(group(), "test");
  scene.expects(Tensor::from_host(shape, values), {1, 2}, [](Index, Index) { return 1; });
  scene.sends("nothing", {});
  return scene.ends().is_right;
}

Row row(int devices, int width) {
  Row row{"label", {}, true};
  for (int d = 0; d < devices; ++d) row.cells.push_back({std::string(static_cast<std::size_t>(width), 'x')});
  return row;
}

Lines lines_of(const std::string& picture) {
  return split_lines(picture);
}

bool has_boxes(const std::string& picture) {
  return picture.find("┌") != std::string::npos;
}

}  // namespace

TEST_CASE("a scene is right only if every value on every device is") {
  CHECK(is_right({1, 2}, {1, 1}));
  const bool is_last = group().device_id() == group().num_devices() - 1;
  CHECK_FALSE(is_right({1, 2}, {1, is_last ? 2.0F : 1.0F}));
  CHECK_FALSE(is_right(is_last ? Shape{2, 1} : Shape{1, 2}, {1, 1}));
}

TEST_CASE("a scene is right only if what every device sent is its closed form") {
  const bool is_last = group().device_id() == group().num_devices() - 1;
  for (const bool is_wrong : {false, true}) {
    Scene scene(group(), "test");
    group().barrier();
    Traffic form = tree_barrier(group().num_devices(), group().device_id());
    if (is_wrong && is_last) ++form.messages;
    scene.sends("a tree", form);
    const shard::Outcome outcome = scene.ends();
    CHECK(outcome.is_right != is_wrong);
    CHECK(outcome.messages.is_met() != is_wrong);
    CHECK(outcome.bytes.is_met());
    CHECK(all_right({outcome}) != is_wrong);
  }
  CHECK(all_right({shard::Outcome{}, shard::Outcome{}}));
}

TEST_CASE("a picture that does not fit loses its boxes, and then is cut into bands of devices") {
  // The page has 100 columns: 12 for the label, then each cell, with 2 columns between cells.
  const std::string boxed = draw({row(4, 16)}, 4);  // 4 (16 + 4) + 3 · 2 = 86 of 88
  CHECK(has_boxes(boxed));
  CHECK(lines_of(boxed).size() == 4);
  const std::string bare = draw({row(4, 20)}, 4);  // 4 · 20 + 6 = 86; 102 with boxes
  CHECK_FALSE(has_boxes(bare));
  CHECK_THAT(bare, contains("device 3"));
  const std::string bands = draw({row(4, 21)}, 4);  // 90
  CHECK(has_boxes(bands));
  CHECK(lines_of(bands).size() == 9);  // two bands of two devices each, and a line between them
  for (const std::string& picture : {boxed, bare, bands})
    for (const std::string& line : lines_of(picture)) CHECK(width_of(line) <= drawing_columns());
  CHECK(has_boxes(draw({row(1, 300)}, 1)));  // one device is drawn even if it is too wide
}

}  // namespace shard::testing
