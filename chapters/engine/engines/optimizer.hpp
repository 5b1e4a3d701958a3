#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/engines/sharded_engine.hpp"

namespace shard {

/// Updates in place the rows that are trainable on this device. Then the engine sends them to other devices
/// if these need them. An optimizer has state only for the rows that this device updates.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One step: updates every trainable, then `after_step()`.
  void step(ShardedEngine& engine, const Gradients& gradients);

  /// \name State: numbers that an optimizer keeps for each element that it updates
  /// @{
  /// The names of these numbers: mean and variance, for Adam.
  virtual std::vector<std::string> state_names() const { return {}; }
  /// The number of these numbers: 2 for Adam.
  Index state_per_element() const { return static_cast<Index>(state_names().size()); }
  /// The state of a trainable: a tensor of its shape for each of `state_names()`, zeros at first.
  std::vector<Tensor>& state_of(const Trainable& trainable);
  /// The steps made so far, those before a checkpoint included.
  Index steps() const { return steps_; }
  /// Continues after this number of steps. The caller fills in the state.
  void go_on_after(Index steps) { steps_ = steps; }
  /// @}

 protected:
  /// `gradient` is the gradient of the trainable's rows alone.
  virtual void update(const Trainable& trainable, const Tensor& gradient) = 0;

 private:
  Index steps_ = 0;
  std::map<std::string, std::vector<Tensor>> state_;
};

/// w -= rate * g.
class Sgd : public Optimizer {
 public:
  explicit Sgd(float rate) : rate_(rate) {}

 protected:
  void update(const Trainable& t, const Tensor& gradient) override {
    sgd_update(t.parameter, gradient, rate_);
  }

 private:
  float rate_;
};

/// Adam (Kingma and Ba 2015).
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamSettings& settings) : settings_(settings) {}
  std::vector<std::string> state_names() const override { return {"mean", "variance"}; }

 protected:
  void update(const Trainable& t, const Tensor& gradient) override;

 private:
  AdamSettings settings_;
};

/// w <- ((w - g) mod 5) - 2. Small integers stay small integers, so that several steps can be compared bit
/// for bit. A gradient with a wrong scale gives other weights. Some parameters must stay as they are for sums
/// to be exact; the workload names them, and this optimizer does not change them. Gradients are multiples of
/// `unit`, a power of two, and count in units.
class IntegerOptimizer : public Optimizer {
 public:
  using MustStay = std::function<bool(const std::string& parameter)>;
  explicit IntegerOptimizer(MustStay must_stay, float unit = 1)
      : must_stay_(std::move(must_stay)), unit_(unit) {}

 protected:
  void update(const Trainable& t, const Tensor& gradient) override {
    if (must_stay_(t.name)) return;
    if (unit_ == 1)
      integer_update(t.parameter, gradient);
    else
      integer_update(t.parameter, scale(gradient.clone(), 1 / unit_));
  }

 private:
  MustStay must_stay_;
  float unit_;
};

/// w <- w / 2, whatever the gradient is. Makes with_halved_weights of an exact problem, at any size.
class HalvingOptimizer : public Optimizer {
 public:
  explicit HalvingOptimizer(IntegerOptimizer::MustStay must_stay) : must_stay_(std::move(must_stay)) {}

 protected:
  void update(const Trainable& t, const Tensor&) override {
    if (must_stay_(t.name)) return;
    Tensor w = slice(*t.parameter.tensor, 0, t.parameter.begin, t.parameter.end);
    sgd_update(t.parameter, w, 0.5F);
  }

 private:
  IntegerOptimizer::MustStay must_stay_;
};

/// Makes "sgd", "adam" or "integer" (with its `unit`). \throws Error usage for another name
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, float rate,
                                          const IntegerOptimizer::MustStay& must_stay, float unit = 1);

/// ‖g‖₂ of all parameters' gradients together. Each element counts once in any layout: a replicated gradient
/// once and not once for each device, a sharded one summed over the devices, an owned one on its owner. On a
/// mesh, the first of the devices that hold a part counts it. Every device gets the same number. A collective
/// of control messages, which the ledger does not count.
double gradient_norm(Communicator& group, const Gradients& gradients);

/// Scales all gradients by max_norm / (norm + 1e-6) where that is less than 1, as
/// torch.nn.utils.clip_grad_norm_ does. Returns the norm before scaling. A collective.
double clip_gradients(Communicator& group, Gradients& gradients, double max_norm);

}  // namespace shard
