#include "engine/engines/optimizer.hpp"

#include <bit>
#include <cmath>
#include <numeric>

#include "engine/device/books/ledger.hpp"

namespace shard {

void Optimizer::step(ShardedEngine& engine, const Gradients& gradients) {
  ++steps_;
  for (const Trainable& t : engine.trainable())
    update(t, gradients.of_parameter(t.name, t.parameter.shape()));
  engine.after_step();
}

std::vector<Tensor>& Optimizer::state_of(const Trainable& trainable) {
  auto [found, is_new] = state_.try_emplace(trainable.name);
  for (Index i = 0; is_new && i < state_per_element(); ++i) {
    found->second.emplace_back(trainable.parameter.shape());
    found->second.back().charge_to(Purpose::optimizer);
  }
  return found->second;
}

void Adam::update(const Trainable& t, const Tensor& gradient) {
  std::vector<Tensor>& state = state_of(t);
  adam_update(t.parameter, gradient, state[0], state[1], settings_, steps());
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, float rate,
                                          const IntegerOptimizer::MustStay& must_stay, float unit) {
  if (name == "sgd") return std::make_unique<Sgd>(rate);
  if (name == "integer") return std::make_unique<IntegerOptimizer>(must_stay, unit);
  if (name != "adam") throw Error(Code::usage, "--optimizer: expected sgd, adam or integer, given " + name);
  AdamSettings settings;
  settings.rate = rate;
  return std::make_unique<Adam>(settings);
}

double gradient_norm(Communicator& group, const Gradients& gradients) {
  std::vector<Later<double>> whole;  // gradients that every device has
  std::vector<Later<double>> mine;   // my slices, what I own, and first copies on a mesh
  for (const auto& [name, gradient] : gradients) {
    if (name == Gradients::input_grad) continue;
    const bool is_whole = gradient.placement() == Placement::replicated();
    const bool has_elements = gradient.counts_here() && gradient.local().size() > 0;
    if (has_elements) (is_whole ? whole : mine).push_back(sum_of_squares(gradient.local()));
  }
  double of_all = std::accumulate(whole.begin(), whole.end(), 0.0);
  const double of_mine = std::accumulate(mine.begin(), mine.end(), 0.0);
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
