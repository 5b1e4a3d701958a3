#include "engine/workloads/initial_values.hpp"

#include <fmt/format.h>

#include <map>

#include "engine/workloads/random.hpp"

namespace shard {

namespace {

using namespace checkpoint;

class GeneratedCheckpoint : public Checkpoint {
 public:
  GeneratedCheckpoint(const std::vector<Parameter>& parameters, std::uint64_t seed) : seed_(seed) {
    for (const Parameter& p : parameters) parameters_[p.name] = p;
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, parameter] : parameters_) all.push_back(name);
    return all;
  }
  bool contains(const std::string& name) const override { return parameters_.contains(name); }
  Shape shape(const std::string& name) const override {
    if (!contains(name)) refuse_unknown(source(), name);
    return parameters_.at(name).shape;
  }
  std::string source() const override { return fmt::format("generated with seed {}", seed_); }

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    const Parameter& parameter = parameters_.at(name);
    const auto [bound, center] = std::pair(parameter.bound, parameter.center);
    const CounterRandom random(seed_, name);
    std::vector<float> values;
    for_each_run(parameter.shape, part, [&](Index first, Index, Index length) {
      for (Index i = first; i < first + length; ++i)
        values.push_back(center + bound * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
    });
    return values;
  }

  std::uint64_t seed_;
  std::map<std::string, Parameter> parameters_;
};

}  // namespace

std::unique_ptr<Checkpoint> generate_checkpoint(const std::vector<Parameter>& parameters,
                                                std::uint64_t seed) {
  return std::make_unique<GeneratedCheckpoint>(parameters, seed);
}

}  // namespace shard
