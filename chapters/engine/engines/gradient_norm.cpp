#include "engine/engines/gradient_norm.hpp"

#include <bit>
#include <cmath>

namespace shard {

double gradient_norm(Communicator& group, const Gradients& gradients) {
  double of_all = 0;   // of gradients that every device has
  double of_mine = 0;  // of my slices, of what I own, and of first copies on a mesh
  for (const auto& [name, gradient] : gradients) {
    if (name == Gradients::input_grad) continue;
    const bool is_whole = gradient.placement() == Placement::replicated();
    const bool has_elements = gradient.counts_here() && gradient.local().size() > 0;
    if (has_elements) (is_whole ? of_all : of_mine) += sum_of_squares(gradient.local());
  }
  for (Index bits : group.exchange("the gradients' norm", std::bit_cast<Index>(of_mine)))
    of_all += std::bit_cast<double>(bits);
  return std::sqrt(of_all);
}

double clip_gradients(Communicator& group, Gradients& gradients, double max_norm) {
  const double norm = gradient_norm(group, gradients);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (auto& [name, gradient] : gradients)
    if (name != Gradients::input_grad) gradient.scale_by(static_cast<float>(factor));
  return norm;
}

}  // namespace shard
