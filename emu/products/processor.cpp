#include "emu/products/processor.hpp"

#include <algorithm>
#include <array>

namespace shard::emu {

namespace {

struct Kernels {
  std::string_view name;
  Instructions instructions;
};

using enum Instructions;

// Names in OpenBLAS 0.3.21 to 0.3.29. Those of old processors that have names of their own compute with SSE.
constexpr Kernels of_openblas[] = {
    {"Katmai", baseline},     {"Coppermine", baseline},  {"Northwood", baseline}, {"Prescott", baseline},
    {"Banias", baseline},     {"Atom", baseline},        {"Core2", baseline},     {"Penryn", baseline},
    {"Dunnington", baseline}, {"Athlon", baseline},      {"Opteron", baseline},   {"Opteron_SSE3", baseline},
    {"Barcelona", baseline},  {"Nano", baseline},        {"Bobcat", baseline},    {"Nehalem", sse42},
    {"Sandybridge", avx},     {"Bulldozer", avx},        {"Piledriver", avx2},    {"Steamroller", avx2},
    {"Excavator", avx2},      {"Haswell", avx2},         {"Zen", avx2},           {"SkylakeX", avx512},
    {"Cooperlake", avx512},   {"SapphireRapids", avx512}};
constexpr Kernels of_blis[] = {{"generic", baseline}, {"penryn", baseline}, {"sandybridge", avx},
                               {"bulldozer", avx},    {"piledriver", avx2}, {"steamroller", avx2},
                               {"excavator", avx2},   {"haswell", avx2},    {"zen", avx2},
                               {"zen2", avx2},        {"zen3", avx2},       {"skx", avx512},
                               {"knl", avx512},       {"zen4", avx512},     {"zen5", avx512}};

/// The library's kernels for these instructions; empty: it has none of its own.
std::string_view kernels_for(ByModel library, Instructions instructions, bool is_amd) {
  const bool is_openblas = library == ByModel::openblas;
  switch (instructions) {
    case baseline:
      return {};
    case sse42:
      return is_openblas ? "Nehalem" : "";
    case avx:
      return is_openblas ? "Sandybridge" : "sandybridge";
    case avx2:
      return is_amd ? (is_openblas ? "Zen" : "zen") : is_openblas ? "Haswell" : "haswell";
    case avx512:
      return is_openblas ? "SkylakeX" : "skx";
  }
  return {};
}

}  // namespace

std::string_view name_of(Instructions instructions) {
  constexpr std::array names = {"SSE", "SSE4.2", "AVX", "AVX2", "AVX-512"};
  return names[static_cast<std::size_t>(instructions)];
}

#ifdef __x86_64__
Processor this_processor() {
  __builtin_cpu_init();
  Processor p{baseline, __builtin_cpu_is("amd") != 0};
  if (!__builtin_cpu_supports("sse4.2")) return p;
  p.instructions = sse42;
  if (!__builtin_cpu_supports("avx")) return p;
  p.instructions = avx;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return p;
  p.instructions = avx2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    p.instructions = avx512;
  return p;
}
#else
Processor this_processor() {
  return {};  // nothing is known: libraries choose
}
#endif

std::vector<std::string> better_kernels(ByModel library, Processor processor, std::string_view chosen) {
  auto instructions_of = [&](const auto& kernels) {
    const auto found = std::ranges::find(kernels, chosen, &Kernels::name);
    return found == std::end(kernels) ? avx512 : found->instructions;
  };
  const Instructions used =
      library == ByModel::openblas ? instructions_of(of_openblas) : instructions_of(of_blis);
  std::vector<std::string> better;
  for (const Instructions more : {avx512, avx2, avx, sse42}) {
    const std::string_view name = kernels_for(library, more, processor.is_amd);
    if (more <= processor.instructions && more > used && !name.empty()) better.emplace_back(name);
  }
  return better;
}

}  // namespace shard::emu
