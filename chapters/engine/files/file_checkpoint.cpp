#include "engine/files/file_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/files/safetensors/safetensors.hpp"

namespace shard {

namespace {

/// Checks every value without leaving the loop early, so that it can use vector instructions.
bool are_finite(const std::vector<float>& values) {
  constexpr std::uint32_t exponent = 0x7f800000;
  std::uint32_t others = 0;
  for (const float value : values) others |= (std::bit_cast<std::uint32_t>(value) & exponent) == exponent;
  return others == 0;
}

/// Refuses a value that is not finite, and names its indices in the whole tensor.
void require_finite(const std::string& what, const Ranges& part, const std::vector<float>& values) {
  if (are_finite(values)) return;
  const auto found = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  Shape index = place_of(found - values.begin(), shape_of(part));
  for (std::size_t d = 0; d < index.size(); ++d) index[d] += part[d].begin;
  refuse(Code::not_finite, what, "finite numbers", fmt::format("{} at {}", *found, to_string(index)));
}

class FileCheckpoint : public ListedCheckpoint {
 public:
  explicit FileCheckpoint(SafetensorsFile file)
      : ListedCheckpoint(shapes_of(file.entries()), file.path()), file_(std::move(file)) {}

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    std::vector<float> values = file_.read(name, part);
    require_finite(source() + ": " + name, part, values);
    return values;
  }

  SafetensorsFile file_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path) {
  return std::make_unique<FileCheckpoint>(SafetensorsFile(path));
}

}  // namespace shard
