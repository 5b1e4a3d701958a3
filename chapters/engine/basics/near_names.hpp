#pragma once

#include <string>
#include <vector>

namespace shard {

/// What is there instead of a name: "; there are a.weight, b.weight", the (at most three) names with the fewest
/// edits from it, in this order; "; there is none" without any name.
std::string names_near(const std::string& name, const std::vector<std::string>& there);

/// The names that a mistyped one may stand for, at most five: ": did you mean all_reduce?"; empty if none is near. Case,
/// hyphens and underscores do not count, and a part of a name is near it.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& there);

}  // namespace shard
