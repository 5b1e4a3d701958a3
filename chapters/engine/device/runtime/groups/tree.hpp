#pragma once

#include <vector>

namespace shard::runtime {

/// A device's place in a binomial tree. With devices numbered from the root, the parent of v is v with its
/// lowest set bit cleared.
struct Tree {
  int parent = -1;            ///< -1 at the root
  std::vector<int> children;  ///< the one with the largest subtree first

  Tree(int me, int devices, int root) {
    int v = (me - root + devices) % devices;
    int bit = 1;
    while (bit < devices && !(v & bit)) bit *= 2;
    if (v != 0) parent = (v - bit + root) % devices;
    for (bit /= 2; bit > 0; bit /= 2)
      if (v + bit < devices) children.push_back((v + bit + root) % devices);
  }
};

}  // namespace shard::runtime
