#include "05_expert/single_mixture.hpp"
#include "engine/workloads/mixture.hpp"
#include "expert_data.hpp"
#include "mesh_option.hpp"
#include "variants.hpp"

namespace shard::meshes {

namespace {

/// A mixture on a mesh, with one expert a token, or with several.
Variant mixture_on_mesh(const std::string& name, const std::string& summary, Index top_k) {
  const MeshOption mesh({"data", "expert"});
  Variant v = mesh.without_engine(name, summary);
  v.make = [mesh](Communicator& group, const Workload& w, const Options& o) {
    return std::make_unique<ExpertData>(group, mesh.shape(group.num_devices(), o), as_mixture(w).rule());
  };
  v.workload = &mixture(top_k);
  return v;
}

/// The mixture on one device that it must equal.
Variant single_mixture(const std::string& of, Index top_k) {
  return {.name = of + "-single",
          .summary = "the mixture that " + of + " must equal, on one device",
          .make = [](Communicator& group, const Workload& w,
                     const Options&) { return std::make_unique<SingleMixture>(group, as_mixture(w).rule()); },
          .workload = &mixture(top_k),
          .is_reference = true};
}

}  // namespace

std::vector<Variant> variants_of_mixtures() {
  return {mixture_on_mesh("expert-data", "experts over expert, copies over data, tokens over both", 2),
          mixture_on_mesh("switch-data", "the same with one expert a token", 1),
          single_mixture("expert-data", 2), single_mixture("switch-data", 1)};
}

}  // namespace shard::meshes
