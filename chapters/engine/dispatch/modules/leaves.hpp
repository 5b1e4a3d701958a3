#pragma once

/// Modules and steps that all families use.

#include "engine/dispatch/modules/tree.hpp"

namespace shard::dispatch {

inline Module linear(const std::string& name, Index rows, Index columns) {
  return {name, "Linear", {{"weight", rows * columns}}};
}
inline Module embedding(const std::string& name, Index rows, Index columns) {
  return {name, "Embedding", {{"weight", rows * columns}}};
}
inline Module vector(const std::string& name, const std::string& class_name, Index elements) {
  return {name, class_name, {{"weight", elements}}};
}

/// Appends the steps of a part whose modules are children of `parent`.
inline void append(std::vector<Step>& flow, const std::string& parent, const std::vector<Step>& part) {
  for (const Step& step : part)
    flow.push_back({step.module.empty() ? parent : path_of(parent, step.module), step.reads, step.writes});
}

}  // namespace shard::dispatch
