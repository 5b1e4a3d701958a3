#include "engine/workloads/initial_values.hpp"

#include <fmt/format.h>

#include <map>

#include "engine/basics/ranges.hpp"
#include "engine/workloads/random.hpp"

namespace shard {

namespace {

class GeneratedCheckpoint : public ListedCheckpoint {
 public:
  GeneratedCheckpoint(std::map<std::string, Parameter> parameters, std::uint64_t seed)
      : ListedCheckpoint(shapes_of(parameters), fmt::format("generated with seed {}", seed)),
        seed_(seed),
        parameters_(std::move(parameters)) {}

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    const Parameter& parameter = parameters_.at(name);
    const auto bound = parameter.bound, center = parameter.center;
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
  std::map<std::string, Parameter> by_name;
  for (const Parameter& p : parameters) by_name[p.name] = p;
  return std::make_unique<GeneratedCheckpoint>(std::move(by_name), seed);
}

}  // namespace shard
