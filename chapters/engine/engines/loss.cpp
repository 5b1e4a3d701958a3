#include "engine/engines/loss.hpp"

#include <array>
#include <numeric>

#include "engine/device/gathered.hpp"

namespace shard {

double LossSum::total(Communicator& group) const {
  const std::map<Index, double> mine(parts_.rbegin(), parts_.rend());  // the last first: one wait for the device
  std::map<Index, double> all;
  for (const auto& theirs : gather(group, "the loss", mine))
    for (const auto& [row, part] : theirs) all[row] = part;
  double sum = 0;
  for (const auto& [row, part] : all) sum += part;
  return sum;
}

MeanSquaredError::MeanSquaredError(Index batch, Index width, std::function<Tensor(Range rows)> target)
    : elements_(batch * width), target_(std::move(target)) {}

Tensor MeanSquaredError::gradient(const Tensor& output, Index first_row) {
  auto factor = static_cast<float>(2.0 / static_cast<double>(elements_));
  Tensor target = target_({first_row, first_row + output.extent(0)});
  Tensor gradient = scaled_difference(output, std::move(target), factor);
  if (output.size() > 0)
    squares_.add(first_row, Later<double>([squares = sum_of_squares(gradient), factor] {
                   return squares / (double{factor} * factor);
                 }));
  return gradient;
}

double MeanSquaredError::value(Communicator& group) const {
  return squares_.total(group) / static_cast<double>(elements_);
}

Tensor MeanTokenLoss::gradient(const Tensor& losses, Index first_row) {
  if (losses.size() > 0)
    losses_.add(first_row, Later<double>([later = losses.to_host_later()] {
                  const std::vector<float> all = later;
                  return std::accumulate(all.begin(), all.end(), 0.0);
                }));
  const auto each = static_cast<float>(1 / static_cast<double>(labelled_));
  return add_to_rows(Tensor(losses.shape()), std::array{each});
}

}  // namespace shard
