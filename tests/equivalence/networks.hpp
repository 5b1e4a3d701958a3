#pragma once

/// The networks that variants are tested on, of each kind of workload, and the steps of integers that keep their
/// problems exact.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engines/optimizer.hpp"
#include "engine/workloads/workload.hpp"

namespace shard::testing {

/// A network and the rows of its batch.
struct TestCase {
  std::shared_ptr<const Workload> workload;
  Index batch;
};
/// Whether a variant takes a network.
using Accepts = std::function<bool(const Workload&)>;

/// Networks that a variant accepts: shapes that no cut divides evenly, also with more devices than rows or columns;
/// several depths. Those of a reader's own kind are made by WorkloadKind::sized.
std::vector<TestCase> cases_of(const WorkloadKind& kind, const Accepts& accepts);
/// A case of eleven rows. A row's result does not depend on the other rows that are computed with it.
TestCase streamed_case_of(const WorkloadKind& kind, const Accepts& accepts);
/// Problems in which every number that `devices` devices send matters: for tests that plant mistakes.
std::vector<ExactProblem> live_problems_of(const WorkloadKind& kind, int devices, const Accepts& accepts);

/// Whether the network's exact problems stay exact during steps of an integer optimizer.
bool stays_exact(const Workload& network);
/// The problem's weights after one step of the integer optimizer with these gradients. With momenta, by parameter,
/// it updates these first, and steps by them.
using Momenta = std::map<std::string, std::vector<float>>;
void integer_step(ExactProblem& problem, const Solution& gradients, Momenta* momenta = nullptr);

/// IntegerOptimizer with a state: m <- ((m - g) mod 5) - 2 and w <- ((w - m) mod 5) - 2. m begins with zeros.
/// It shows whether a state is divided and kept correctly.
class IntegerMomentum : public Optimizer {
 public:
  explicit IntegerMomentum(IntegerOptimizer::MustStay must_stay, float unit = 1)
      : must_stay_(std::move(must_stay)), unit_(unit) {}
  std::vector<std::string> state_names() const override { return {"momentum"}; }

 protected:
  void update(const Trainable& t, const Tensor& gradient) override {
    if (must_stay_(t.name)) return;
    Tensor& momentum = state_of(t)[0];
    integer_update(Rows(momentum), scale(gradient.clone(), 1 / unit_));
    integer_update(t.parameter, momentum);
  }

 private:
  IntegerOptimizer::MustStay must_stay_;
  float unit_;
};

}  // namespace shard::testing
