#include "engine/proof/trace.hpp"

#include <numeric>

namespace shard {

namespace {

Index sum(const std::vector<Index>& elements) {
  return std::accumulate(elements.begin(), elements.end(), Index{0});
}

}  // namespace

void Trace::all_reduce(Index elements) {
  sent(Collective::all_reduce) += ring_all_reduce(elements, devices_, device_);
  pass(ring_buffer(elements, devices_));
}

void Trace::reduce_scatter(const std::vector<Index>& slices, Along axis) {
  if (devices_ > 1 && axis == Along::other_axis) pass(sum(slices));
  begin_reduce_scatter(slices);
  end_reduce_scatter(slices);
}

void Trace::begin_reduce_scatter(const std::vector<Index>& slices) {
  if (devices_ == 1) return;
  sent(Collective::reduce_scatter) += ring_reduce_scatter(slices, device_);
  hold(slices[0]);
}

void Trace::end_reduce_scatter(const std::vector<Index>& slices) {
  if (devices_ == 1) return;
  release(slices[0]);
  hold(mine(slices));
  release(sum(slices));
}

void Trace::all_gather(const std::vector<Index>& slices) {
  sent(Collective::all_gather) += ring_all_gather(slices, device_);
  hold(sum(slices));
}

void Trace::all_gather_in_place(const std::vector<Index>& slices, Along axis) {
  if (devices_ == 1) return;
  all_gather(slices);
  release(mine(slices));
  if (axis == Along::other_axis) pass(sum(slices));
}

void Trace::all_to_all(const std::vector<Index>& to, const std::vector<Index>& from, Along axis) {
  if (devices_ == 1) return;
  sent(Collective::all_to_all) += pairwise_all_to_all(to, device_);
  if (axis == Along::other_axis) pass(sum(to));
  hold(sum(from));
  release(sum(to));
  if (axis == Along::other_axis) pass(sum(from));
}

void Trace::send(Index elements) {
  if (elements > 0) sent(Collective::send) += {1, elements * bytes_per_element};
}

Costs Trace::costs(Index parameters) const {
  Costs costs;
  costs.sent = sent_;
  costs.flops = flops_;
  costs.parameter_bytes = parameters * bytes_per_element;
  costs.peak_bytes = most_ * bytes_per_element;
  return costs;
}

}  // namespace shard
