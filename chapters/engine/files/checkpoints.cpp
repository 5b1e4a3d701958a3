#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/checkpoint.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/workloads/random.hpp"

namespace shard {

namespace {

[[noreturn]] void refuse_unknown(const std::string& source, const std::string& name) {
  throw Error(Code::file, fmt::format("{}: expected a parameter {}, given none of that name", source, name));
}

void require_range(const std::string& name, const Shape& shape, int axis, Index begin, Index end) {
  if (axis < 0 || axis >= static_cast<int>(shape.size()) || begin < 0 || begin > end ||
      end > shape[static_cast<std::size_t>(axis)])
    refuse(Code::argument, "slice of " + name, "a range of an axis of " + to_string(shape),
           fmt::format("[{}, {}) of axis {}", begin, end, axis));
}

Tensor as_parameter(Shape shape, int axis, Index begin, Index end, const std::vector<float>& values) {
  shape[static_cast<std::size_t>(axis)] = end - begin;
  Tensor t = Tensor::from_host(std::move(shape), values);
  t.charge_to(Purpose::parameters);
  return t;
}

/// Calls visit(global index) for every element of a slice, in row-major order.
template <class Visit>
void for_each_in_slice(const Shape& shape, int axis, Index begin, Index end, const Visit& visit) {
  Index inner = 1;
  for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  Index extent = shape[static_cast<std::size_t>(axis)];
  Index outer = extent * inner == 0 ? 0 : num_elements(shape) / (extent * inner);
  for (Index o = 0; o < outer; ++o)
    for (Index i = (o * extent + begin) * inner; i < (o * extent + end) * inner; ++i) visit(i);
}

/// Values of a slice [begin, ...) along `axis`, all finite. Names the first that is not, by its global
/// indices.
void require_finite(const std::string& what, Shape shape, int axis, Index begin, Index end,
                    const std::vector<float>& values) {
  auto found = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  if (found == values.end()) return;
  shape[static_cast<std::size_t>(axis)] = end - begin;
  Shape index(shape.size());
  Index rest = found - values.begin();
  for (std::size_t i = shape.size(); i-- > 0; rest /= shape[i]) index[i] = rest % shape[i];
  index[static_cast<std::size_t>(axis)] += begin;
  refuse(Code::not_finite, what, "finite numbers", fmt::format("{} at {}", *found, to_string(index)));
}

class FileCheckpoint : public Checkpoint {
 public:
  explicit FileCheckpoint(const std::string& path) : file_(path) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, entry] : file_.entries()) all.push_back(name);
    return all;
  }
  bool contains(const std::string& name) const override { return file_.entries().contains(name); }
  Shape shape(const std::string& name) const override {
    if (!contains(name)) refuse_unknown(source(), name);
    return file_.entries().at(name).shape;
  }
  Tensor slice(const std::string& name, int axis, Index begin, Index end) const override {
    require_range(name, shape(name), axis, begin, end);
    std::vector<float> values = file_.read(name, axis, begin, end);
    require_finite(source() + ": " + name, shape(name), axis, begin, end, values);
    return as_parameter(shape(name), axis, begin, end, values);
  }
  std::string source() const override { return file_.path(); }

 private:
  SafetensorsFile file_;
};

class GeneratedCheckpoint : public Checkpoint {
 public:
  GeneratedCheckpoint(const Model& model, std::uint64_t seed) : seed_(seed) {
    for (Index l = 0; l < model.num_layers; ++l) {
      Parameter layer = {model.shape(l), l % 2 == 1};
      if (model.num_experts == 0) parameters_.emplace(layer_name(l), layer);
      for (Index e = 0; e < model.num_experts; ++e) parameters_.emplace(expert_layer_name(e, l), layer);
    }
    if (model.num_experts > 0) parameters_[router_name()] = {{model.model_dim, model.num_experts}, false};
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
  Tensor slice(const std::string& name, int axis, Index begin, Index end) const override {
    Shape whole = shape(name);
    require_range(name, whole, axis, begin, end);
    float gain = parameters_.at(name).is_after_relu ? 6.0F : 3.0F;
    float bound = std::sqrt(gain / static_cast<float>(whole[0]));
    CounterRandom random(seed_, name);
    std::vector<float> values;
    for_each_in_slice(whole, axis, begin, end, [&](Index i) {
      values.push_back(bound * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
    });
    return as_parameter(whole, axis, begin, end, values);
  }
  std::string source() const override { return fmt::format("generated with seed {}", seed_); }

 private:
  struct Parameter {
    Shape shape;
    bool is_after_relu = false;
  };
  std::uint64_t seed_;
  std::map<std::string, Parameter> parameters_;
};

class HostCheckpoint : public Checkpoint {
 public:
  HostCheckpoint(std::map<std::string, HostTensor> tensors, std::string source)
      : tensors_(std::move(tensors)), source_(std::move(source)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override {
    if (!contains(name)) refuse_unknown(source_, name);
    return tensors_.at(name).shape;
  }
  Tensor slice(const std::string& name, int axis, Index begin, Index end) const override {
    Shape whole = shape(name);
    require_range(name, whole, axis, begin, end);
    const std::vector<float>& all = tensors_.at(name).values;
    std::vector<float> values;
    for_each_in_slice(whole, axis, begin, end,
                      [&](Index i) { values.push_back(all[static_cast<std::size_t>(i)]); });
    return as_parameter(whole, axis, begin, end, values);
  }
  std::string source() const override { return source_; }

 private:
  std::map<std::string, HostTensor> tensors_;
  std::string source_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path) {
  return std::make_unique<FileCheckpoint>(path);
}

std::unique_ptr<Checkpoint> generate_checkpoint(const Model& model, std::uint64_t seed) {
  return std::make_unique<GeneratedCheckpoint>(model, seed);
}

std::unique_ptr<Checkpoint> host_checkpoint(std::map<std::string, HostTensor> tensors, std::string source) {
  return std::make_unique<HostCheckpoint>(std::move(tensors), std::move(source));
}

}  // namespace shard
