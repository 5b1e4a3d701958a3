#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/engines/loss.hpp"
#include "engine/workloads/workload.hpp"

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

/// One step's batch of the denoising task, with its mean squared error. The input is pixels / 16 plus normal noise of σ 0.3, and the
/// target is pixels / 16. Digits and noise depend on seed, step and row alone, so each device makes only the
/// rows that it needs.
class DenoisingBatch : public TrainingBatch {
 public:
  /// `batch`: its number of rows.
  DenoisingBatch(const Digits& digits, std::uint64_t seed, Index step, Index batch = 1);

  /// (rows, 64).
  Tensor noisy(Range rows) const { return images(rows, true); }
  Tensor clean(Range rows) const { return images(rows, false); }

  Tensor input(Range rows) const override { return noisy(rows); }
  Tensor loss_gradient(const Tensor& output, Index first_row) override {
    return loss_.gradient(output, first_row);
  }
  double loss(Communicator& group) const override { return loss_.value(group); }

 private:
  Tensor images(Range rows, bool with_noise) const;

  const Digits& digits_;
  std::uint64_t seed_;
  Index step_;
  MeanSquaredError loss_;
};

/// Pairs of images side by side as text, 9 lines high, as many as `width` columns have room for; at least one. A pair is
/// two times 64 pixels, 0..1 from light to dark.
using PairOfImages = std::pair<std::vector<float>, std::vector<float>>;
std::string draw_digits(const std::vector<PairOfImages>& pairs, int width);

/// A network that learns to remove noise from handwritten digits, by mean squared error. Its output is an
/// image.
class DenoisingWorkload : public Workload {
 public:
  /// The option for the file of the digits.
  static const Option<std::string>& data_option();

  explicit DenoisingWorkload(std::string data) : data_(std::move(data)) {}

  /// \throws Error usage when the width of the output is no image's
  void open_data() override;
  std::unique_ptr<TrainingBatch> batch(Index rows, std::uint64_t seed, Index step) const override;
  Examples examples(ShardedEngine& engine, std::uint64_t seed) const override;
  std::string yardstick() const override;

 protected:
  /// The training data, if they are open and have this width; else null.
  const Digits* digits_of_width(Index width) const {
    return width == Digits::pixels ? digits_.get() : nullptr;
  }

 private:
  std::string data_;
  std::shared_ptr<const Digits> digits_;
};

}  // namespace shard
