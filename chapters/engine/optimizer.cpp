#include "engine/optimizer.hpp"

namespace shard {

void Optimizer::step(ShardedEngine& engine, const Gradients& gradients) {
  begin_step();
  for (const Trainable& t : engine.trainable())
    update(t, gradients.of_parameter(t.name, t.parameter.shape()));
  engine.after_step();
}

void Adam::update(const Trainable& t, const Tensor& gradient) {
  auto [found, is_new] = moments_.try_emplace(t.name);
  Moments& moments = found->second;
  if (is_new) {
    moments = {Tensor(t.parameter.shape()), Tensor(t.parameter.shape())};
    moments.mean.charge_to(Purpose::optimizer);
    moments.variance.charge_to(Purpose::optimizer);
  }
  adam_update(t.parameter, gradient, moments.mean, moments.variance, settings_, step_);
}

void IntegerMomentum::update(const Trainable& t, const Tensor& gradient) {
  if (must_stay_(t.name)) return;
  auto [found, is_new] = momenta_.try_emplace(t.name);
  Tensor& momentum = found->second;
  if (is_new) {
    momentum = Tensor(t.parameter.shape());
    momentum.charge_to(Purpose::optimizer);
  }
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
