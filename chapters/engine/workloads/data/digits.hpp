#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// Handwritten digits, 8×8 pixels of 0..16 (chapters/data/README.md).
class Digits {
 public:
  static constexpr Index pixels = 64;

  /// \throws Error file naming the line that is not 64 pixels and a label
  explicit Digits(const std::string& path);
  /// The path of the data set in this source tree.
  static std::string default_path();

  Index size() const { return static_cast<Index>(values_.size()) / pixels; }
  int pixel(Index digit, Index p) const { return values_[static_cast<std::size_t>(digit * pixels + p)]; }

 private:
  std::vector<int> values_;
};

/// One step's batch of the denoising task. The input is pixels / 16 plus normal noise of σ 0.3, and the
/// target is pixels / 16. Digits and noise depend on seed, step and row alone, so each device makes only the
/// rows that it needs.
class DenoisingBatch {
 public:
  DenoisingBatch(const Digits& digits, std::uint64_t seed, Index step);

  /// (rows, 64).
  Tensor noisy(Range rows) const;
  Tensor clean(Range rows) const;

 private:
  Index digit_of(Index row) const;

  const Digits* digits_;
  std::uint64_t seed_;
  Index step_;
};

/// Images side by side as text, each 8 lines high; `rows` is (images, 64), values 0..1 from light to dark.
std::string draw_digits(const std::vector<std::vector<float>>& images);

}  // namespace shard
