#include "engine/workloads/mlp.hpp"
#include "variants.hpp"

namespace shard::meshes {

namespace {

std::vector<Variant> all_of(const std::vector<std::vector<Variant>>& groups) {
  std::vector<Variant> all;
  for (const std::vector<Variant>& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants = all_of({variants_of_two_axes(), variants_with_stages(), variants_of_mixtures(),
                        variants_of_blocks(), variants_of_decoders(), variants_of_five_axes()}),
    .strategies = {{"dp-tp", "data-tensor"},
                   {"2d", "data-tensor"},
                   {"fsdp-tp", "fsdp-tensor"},
                   {"hybrid-shard", "hsdp"},
                   {"3d", "data-pipeline-tensor"},
                   {"dp-pp-tp", "data-pipeline-tensor"},
                   {"ep-dp", "expert-data"},
                   {"4d", "five"},
                   {"5d", "five"}},
});

}  // namespace shard::meshes
