#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/sharded_engine.hpp"

namespace shard {

/// Updates in place the rows that are trainable on this device. Then the engine sends them to other devices
/// if these need them. An optimizer has state only for the rows that this device updates.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One step: updates every trainable, then `after_step()`.
  void step(ShardedEngine& engine, const Gradients& gradients);
  /// Elements of state per element of a parameter: 2 for Adam.
  virtual Index state_per_element() const { return 0; }

 protected:
  virtual void begin_step() {}
  /// `gradient` is that of just the trainable's rows.
  virtual void update(const Trainable& trainable, const Tensor& gradient) = 0;
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
  Index state_per_element() const override { return 2; }

 protected:
  void begin_step() override { ++step_; }
  void update(const Trainable& t, const Tensor& gradient) override;

 private:
  struct Moments {
    Tensor mean;
    Tensor variance;
  };
  AdamSettings settings_;
  Index step_ = 0;
  std::map<std::string, Moments> moments_;
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
    if (!must_stay_(t.name)) integer_update(t.parameter, scale(gradient.clone(), 1 / unit_));
  }

 private:
  MustStay must_stay_;
  float unit_;
};

/// The same with a state, so that a state that is divided or kept wrongly shows: m <- ((m - g) mod 5) - 2 and
/// w <- ((w - m) mod 5) - 2. m begins with zeros.
class IntegerMomentum : public Optimizer {
 public:
  explicit IntegerMomentum(IntegerOptimizer::MustStay must_stay, float unit = 1)
      : must_stay_(std::move(must_stay)), unit_(unit) {}
  Index state_per_element() const override { return 1; }

 protected:
  void update(const Trainable& t, const Tensor& gradient) override;

 private:
  IntegerOptimizer::MustStay must_stay_;
  float unit_;
  std::map<std::string, Tensor> momenta_;
};

/// "sgd", "adam" or "integer", which counts gradients in units. \throws Error usage for another name
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, float rate,
                                          const IntegerOptimizer::MustStay& must_stay, float unit = 1);

}  // namespace shard
