#include "engine/workloads/data/denoising.hpp"

#include <fmt/format.h>

#include "engine/engines/loss.hpp"
#include "engine/engines/sharded_engine.hpp"

namespace shard {

namespace {

class MendedDigits : public TrainingBatch {
 public:
  MendedDigits(const Digits& digits, Index rows, std::uint64_t seed, Index step)
      : digits_(digits, seed, step),
        loss_(rows, Digits::pixels, [this](Range r) { return digits_.clean(r); }) {}

  Tensor input(Range rows) const override { return digits_.noisy(rows); }
  Tensor loss_gradient(const Tensor& output, Index first_row) override {
    return loss_.gradient(output, first_row);
  }
  double loss(Communicator& group) const override { return loss_.value(group); }

 private:
  DenoisingBatch digits_;
  MeanSquaredError loss_;
};

}  // namespace

const Option<std::string>& DenoisingWorkload::data_option() {
  static const Option<std::string> data = [] {
    Option<std::string> option("--data", Digits::default_path(),
                               "The digits, 64 pixels of 0..16 and a label a line");
    option.type = "FILE";
    return option;
  }();
  return data;
}

void DenoisingWorkload::open_data() {
  if (output_shape(1).at(1) != Digits::pixels)
    throw Error(Code::usage, fmt::format("train: --layers: expected an even number, as the output is an "
                                         "image again, given {}",
                                         num_layers()));
  digits_ = std::make_shared<const Digits>(data_);
}

std::unique_ptr<TrainingBatch> DenoisingWorkload::batch(Index rows, std::uint64_t seed, Index step) const {
  return std::make_unique<MendedDigits>(*digits_, rows, seed, step);
}

std::string DenoisingWorkload::examples(ShardedEngine& engine, std::uint64_t seed) const {
  constexpr Index count = 3;
  InferenceMode no_tape;
  DenoisingBatch shown(*digits_, seed, 0);  // training steps begin at 1
  Tensor mended = engine.whole(engine.forward(shown.noisy(engine.input_rows(count))));
  std::vector<std::vector<float>> images;
  for (Index i = 0; i < count; ++i) {
    images.push_back(shown.noisy({i, i + 1}).to_host());
    images.push_back(slice(mended, 0, i, i + 1).to_host());
  }
  return draw_digits(images);
}

}  // namespace shard
