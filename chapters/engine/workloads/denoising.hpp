#pragma once

#include "engine/workloads/digits.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// A network that learns to take the noise out of handwritten digits, by mean squared error: its output is an
/// image again.
class DenoisingWorkload : public Workload {
 public:
  /// The file of the digits.
  static const Option<std::string>& data_option();

  explicit DenoisingWorkload(std::string data) : data_(std::move(data)) {}

  /// \throws Error usage when the output is no image
  void open_data() override;
  std::unique_ptr<TrainingBatch> batch(Index rows, std::uint64_t seed, Index step) const override;
  std::string examples(ShardedEngine& engine, std::uint64_t seed) const override;
  std::string examples_title() const override { return "noisy and mended"; }

 protected:
  /// Those of the training data, where they are open and as wide as this; else nothing.
  const Digits* digits_of_width(Index width) const {
    return width == Digits::pixels ? digits_.get() : nullptr;
  }

 private:
  std::string data_;
  std::shared_ptr<const Digits> digits_;
};

}  // namespace shard
