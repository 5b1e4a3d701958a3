#pragma once

#include "engine/workloads/data/digits.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

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
  std::string examples(ShardedEngine& engine, std::uint64_t seed) const override;
  std::string examples_title() const override { return "noisy and mended"; }

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
