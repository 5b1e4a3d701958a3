#pragma once

/// What this chapter claims: one claim for each axis of each layer.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/device/books/ledger.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

enum class Verdict {
  free,     ///< forward and backward send nothing, but for the sum of weights' gradients
  exact,    ///< equal, with the communication that the claim names
  differs,  ///< a naive cut: it computes something else
};

/// Makes a layer on this group of devices.
using MakeLayer = std::function<std::unique_ptr<Layer>(Communicator& group, Arithmetic)>;
/// The closed form of what device `me` of n sends, forward and backward.
using Form = std::function<Traffic(int n, int me)>;

/// A way to cut a layer along one of its axes.
struct Claim {
  std::string axis;  ///< "batch", "features"
  Verdict verdict;
  std::string price;  ///< what is sent, or what a naive cut leaves out: "all_reduce of dx"
  Form sends;         ///< of right cuts
  MakeLayer make;
  SourceLine shown_at;  ///< the class that cuts so
};

/// A layer, numbers for it, and its claims.
struct LayerCase {
  std::string name;  ///< "RMSNorm"
  HostTensor input, output_grad;
  std::map<std::string, HostTensor> weights;
  MakeLayer whole;
  std::vector<Claim> claims;
  bool has_zeros = false;  ///< of its own: not a sign of a weak case
};

/// The layers, in the order of the page.
std::vector<LayerCase> all_layers();
LayerCase multi_head_attention();
LayerCase grouped_query_attention();

}  // namespace shard::layer_cuts
