#include "mesh_option.hpp"

namespace shard::meshes {

std::vector<Options> MeshOption::every(int devices, const std::vector<std::string>& order,
                                       const Options& others) const {
  std::vector<Options> all;
  for (const std::string& text : mesh_texts(order, devices))
    all.push_back(Options(others).with(option_, text));
  return all;
}

Variant MeshOption::without_engine(const std::string& name, const std::string& summary) const {
  Variant v;
  v.name = name;
  v.summary = summary;
  v.options = {option_};
  v.tested_on = [*this](int devices) {
    std::vector<Options> all = every(devices, axes_);
    std::string reversed;
    for (const std::string& axis : axes_) reversed = axis + (reversed.empty() ? "" : ",") + reversed;
    if (devices > 1) all.push_back(Options().with(option_, reversed));
    return all;
  };
  v.require = [*this](int devices, const Workload&, const Options& o) { shape(devices, o); };
  return v;
}

Variant that_requires(Variant variant,
                      const std::function<void(int devices, const Workload&, const Options&)>& require) {
  variant.require = [before = variant.require, require](int devices, const Workload& network,
                                                        const Options& o) {
    if (before) before(devices, network, o);
    require(devices, network, o);
  };
  return variant;
}

}  // namespace shard::meshes
