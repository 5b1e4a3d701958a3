#include "engine/device/books/collective_costs.hpp"

namespace shard {

namespace {

/// One message for each entry of `elements` except the k-th. Empty messages are not sent.
Traffic all_but(const std::vector<Index>& elements, int k) {
  Traffic sent;
  for (std::size_t i = 0; i < elements.size(); ++i)
    if (static_cast<int>(i) != k && elements[i] > 0) sent += {1, elements[i] * bytes_per_element};
  return sent;
}

/// The number of children of v in a binomial tree: v + 2^i, for every 2^i below v's lowest set bit.
int tree_children(int devices, int v) {
  int children = 0;
  for (int bit = 1; bit < devices && (v & bit) == 0; bit *= 2) children += v + bit < devices ? 1 : 0;
  return children;
}

}  // namespace

std::vector<Index> slices(Index extent, Index of_one, int devices) {
  std::vector<Index> elements;
  for (int d = 0; d < devices; ++d) elements.push_back(part(extent, devices, d).size() * of_one);
  return elements;
}

Index ring_buffer(Index elements, int devices) {
  return devices == 1 ? 0 : part(elements, devices, 0).size();
}

Traffic ring_all_reduce(Index elements, int devices, int device) {
  std::vector<Index> chunks = slices(elements, 1, devices);
  return ring_reduce_scatter(chunks, device) + ring_all_gather(chunks, device);
}

Traffic ring_reduce_scatter(const std::vector<Index>& slices, int device) {
  return all_but(slices, device);
}

Traffic ring_all_gather(const std::vector<Index>& slices, int device) {
  return all_but(slices, (device + 1) % static_cast<int>(slices.size()));
}

Traffic pairwise_all_to_all(const std::vector<Index>& parts, int device) {
  return all_but(parts, device);
}

Traffic tree_broadcast(Index elements, int devices, int device, int root) {
  if (elements == 0) return {};
  int children = tree_children(devices, (device - root + devices) % devices);
  return children * Traffic{1, elements * bytes_per_element};
}

Traffic tree_barrier(int devices, int device) {
  return {tree_children(devices, device) + (device == 0 ? 0 : 1), 0};
}

}  // namespace shard
