#include "engine/engines/optimizer.hpp"

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

void IntegerMomentum::update(const Trainable& t, const Tensor& gradient) {
  if (must_stay_(t.name)) return;
  Tensor& momentum = state_of(t)[0];
  integer_update(Rows(momentum), scale(gradient.clone(), 1 / unit_));
  integer_update(t.parameter, momentum);
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

}  // namespace shard
