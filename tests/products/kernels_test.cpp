/// Which kernels are taken on which processor, and that this process makes exact products with what it has taken.

#include <cstdlib>

#include "emu/products/products.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {1});

namespace {

using emu::ByModel, emu::Instructions;
using Names = std::vector<std::string>;

struct Row {
  ByModel library;
  Instructions instructions;
  bool is_amd;
  const char* chosen;
  Names better;
};

constexpr ByModel openblas = ByModel::openblas, blis = ByModel::blis;

}  // namespace

TEST_CASE("kernels that use more of the processor than the chosen ones, and never more than it has") {
  using enum Instructions;
  const Row rows[] = {
      // a processor that OpenBLAS does not know
      {openblas, avx512, false, "Prescott", {"SkylakeX", "Haswell", "Sandybridge", "Nehalem"}},
      {openblas, avx512, true, "Opteron", {"SkylakeX", "Zen", "Sandybridge", "Nehalem"}},
      {openblas, avx512, false, "Haswell", {"SkylakeX"}},
      {openblas, avx512, true, "Zen", {"SkylakeX"}},
      {openblas, avx2, false, "Prescott", {"Haswell", "Sandybridge", "Nehalem"}},
      {openblas, avx2, true, "Barcelona", {"Zen", "Sandybridge", "Nehalem"}},
      {openblas, avx2, false, "Sandybridge", {"Haswell"}},
      {openblas, avx, false, "Prescott", {"Sandybridge", "Nehalem"}},
      {openblas, sse42, false, "Prescott", {"Nehalem"}},
      // its choice is as good as the processor, or better
      {openblas, avx512, false, "SkylakeX", {}},
      {openblas, avx512, false, "Cooperlake", {}},
      {openblas, avx512, false, "SapphireRapids", {}},
      {openblas, avx2, false, "Haswell", {}},
      {openblas, avx2, true, "Zen", {}},
      {openblas, avx2, true, "Excavator", {}},
      {openblas, sse42, false, "Nehalem", {}},
      {openblas, baseline, false, "Prescott", {}},
      {openblas, avx2, false, "SkylakeX", {}},
      // a name of the future, and of another processor
      {openblas, avx512, false, "DiamondRapids", {}},
      {openblas, baseline, false, "NEOVERSEN1", {}},
      {blis, avx512, false, "haswell", {"skx"}},
      {blis, avx512, false, "generic", {"skx", "haswell", "sandybridge"}},
      {blis, avx2, true, "generic", {"zen", "sandybridge"}},
      {blis, avx512, false, "skx", {}},
      {blis, avx512, true, "zen4", {}},
      {blis, sse42, false, "penryn", {}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.chosen, name_of(row.instructions), row.is_amd);
    CHECK(better_kernels(row.library, {row.instructions, row.is_amd}, row.chosen) == row.better);
  }
}

TEST_CASE("products of this process are exact") {
  for (const emu::ProductLibrary& library : emu::product_libraries()) CHECK(is_exact(library));
}

TEST_CASE("a library is loaded with variables that the program's children do not get") {
  auto variables = [] {
    Names all;
    for (const char* name : {"OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE", "OPENBLAS_NUM_THREADS"})
      all.emplace_back(std::getenv(name) == nullptr ? "not set" : std::getenv(name));
    return all;
  };
  const Names before = variables();
  emu::ProductLibrary::load(emu::known_libraries().front(), "Prescott");
  CHECK(variables() == before);
}

}  // namespace shard::testing
