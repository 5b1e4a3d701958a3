#pragma once

/// Which kernels of a library suit a processor. Nothing here asks the hardware but `this_processor`.

#include <string>
#include <string_view>
#include <vector>

namespace shard::emu {

/// Instructions for products; each has those before it. `avx2`: with fused multiply-add. `avx512`: F, DQ, BW, VL, CD.
enum class Instructions { baseline, sse42, avx, avx2, avx512 };
/// "AVX-512"
std::string_view name_of(Instructions instructions);

struct Processor {
  Instructions instructions = Instructions::baseline;
  bool is_amd = false;
};
/// The processor of this machine; only instructions whose registers the operating system saves.
Processor this_processor();

/// A library whose kernels are chosen by the processor's model.
enum class ByModel { openblas, blis };
/// The kernels that use more of this processor than the `chosen` ones do, best first: "SkylakeX", "Haswell".
/// None where `chosen` is no known name.
std::vector<std::string> better_kernels(ByModel library, Processor processor, std::string_view chosen);

}  // namespace shard::emu
