#pragma once

#include "engine/program/registry.hpp"

namespace shard::meshes {

/// \name The chapter's variants, by what they cut
/// @{
/// `data-tensor`, `fsdp-tensor` and `hsdp`.
std::vector<Variant> variants_of_two_axes();
/// `data-pipeline-tensor`.
std::vector<Variant> variants_with_stages();
/// `expert-data` and `switch-data`, and the mixtures on one device that they must equal.
std::vector<Variant> variants_of_mixtures();
/// `summa`, `cannon` and `gather-both`.
std::vector<Variant> variants_of_blocks();
/// `decoder-data-tensor` and `decoder-fsdp-tensor`, and the decoder on one device that they must equal.
std::vector<Variant> variants_of_decoders();
/// `five`, `decoder-data-pipeline-tensor` and `decoder-expert-data`, and the mixture that they must equal.
std::vector<Variant> variants_of_five_axes();
/// @}

}  // namespace shard::meshes
