#include "engine/files/file_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/files/safetensors.hpp"

namespace shard {

namespace {

using namespace checkpoint;

/// Values of a slice [begin, ...) along `axis`, all finite. Names the first that is not, by its global
/// indices.
void require_finite(const std::string& what, Shape shape, int axis, Index begin, Index end,
                    const std::vector<float>& values) {
  auto found = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  if (found == values.end()) return;
  shape[static_cast<std::size_t>(axis)] = end - begin;
  Shape index(shape.size());
  Index rest = found - values.begin();
  for (std::size_t i = shape.size(); i-- > 0; rest /= shape[i]) index[i] = rest % shape[i];
  index[static_cast<std::size_t>(axis)] += begin;
  refuse(Code::not_finite, what, "finite numbers", fmt::format("{} at {}", *found, to_string(index)));
}

class FileCheckpoint : public Checkpoint {
 public:
  explicit FileCheckpoint(const std::string& path) : file_(path) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, entry] : file_.entries()) all.push_back(name);
    return all;
  }
  bool contains(const std::string& name) const override { return file_.entries().contains(name); }
  Shape shape(const std::string& name) const override {
    if (!contains(name)) refuse_unknown(source(), name);
    return file_.entries().at(name).shape;
  }
  std::string source() const override { return file_.path(); }

 private:
  std::vector<float> values(const std::string& name, int axis, Index begin, Index end) const override {
    std::vector<float> slice = file_.read(name, axis, begin, end);
    require_finite(source() + ": " + name, shape(name), axis, begin, end, slice);
    return slice;
  }

  SafetensorsFile file_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path) {
  return std::make_unique<FileCheckpoint>(path);
}

}  // namespace shard
