#pragma once

/// The meshes on which tests run.

#include <fmt/format.h>

#include <string>
#include <vector>

namespace shard::testing {

/// The texts for --mesh with all sizes that fit, the axes in this order: "data=1,tensor=4", "data=2,tensor=2", ...
inline std::vector<std::string> mesh_texts(const std::vector<std::string>& axes, int devices) {
  if (axes.size() == 1) return {fmt::format("{}={}", axes[0], devices)};
  std::vector<std::string> texts;
  for (int first = 1; first <= devices; ++first)
    if (devices % first == 0)
      for (const std::string& others : mesh_texts({axes.begin() + 1, axes.end()}, devices / first))
        texts.push_back(fmt::format("{}={},{}", axes[0], first, others));
  return texts;
}

}  // namespace shard::testing
