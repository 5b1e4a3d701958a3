#pragma once

/// Cuts a stack of layers into contiguous stages.

#include <string>
#include <vector>

#include "engine/workloads/mlp_model.hpp"

namespace shard::pipeline {

/// The layers of each stage. `how`:
///   equal   as many for each, the first ones with one more where they do not divide
///   flops   so that the most expensive stage computes as little as possible; layer 0 needs no dL/dx
///   bytes   so that the largest stage's parameters, gradients and Adam's state take as few bytes as possible
///   3,2,3   that many
/// \throws Error usage when there are fewer layers than stages, or the list does not fit
std::vector<Range> cut_into_stages(const Model& model, int stages, const std::string& how);

/// Contiguous parts of a row of costs, none of them empty, so that the largest sum of a part is as small as
/// it can be; of several such cuts the one whose first parts are largest.
std::vector<Range> cut_by_cost(const std::vector<Index>& costs, int parts);

}  // namespace shard::pipeline
