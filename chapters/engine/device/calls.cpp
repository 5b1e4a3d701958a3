/// The calls of a communicator, as its users make them: errors name the line of each.

#include "engine/device/device.hpp"

namespace shard {

std::unique_ptr<Communicator> Communicator::split(std::optional<Index> color, Index key, SourceLine where) {
  const CallSite call(where);
  return do_split(color, key);
}

void Communicator::barrier(SourceLine where) {
  const CallSite call(where);
  do_barrier();
}

void Communicator::send(int dest_id, const Tensor& t, SourceLine where) {
  const CallSite call(where);
  do_send(dest_id, t);
}

Tensor Communicator::receive(int src_id, SourceLine where) {
  const CallSite call(where);
  return do_receive(src_id);
}

Future<> Communicator::post_send(int dest_id, Tensor&& t, SourceLine where) {
  const CallSite call(where);
  return do_post_send(dest_id, std::move(t));
}

Future<Tensor> Communicator::post_receive(int src_id, const Shape& shape, SourceLine where) {
  const CallSite call(where);
  return do_post_receive(src_id, shape);
}

Future<> Communicator::send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id,
                                  SourceLine where) {
  const CallSite call(where);
  return do_send_async(src, dst, target_device_id);
}

Future<Tensor> Communicator::all_gather_async(Tensor&& slice, int axis, const std::optional<Shape>& whole,
                                              SourceLine where) {
  const CallSite call(where);
  return do_all_gather(std::move(slice), axis, whole);
}

Future<Tensor> Communicator::all_gather_async(const Tensor& slice, int axis,
                                              const std::optional<Shape>& whole, SourceLine where) {
  const CallSite call(where);
  return do_all_gather(slice, axis, whole);
}

Future<Tensor> Communicator::all_reduce_async(Tensor&& t, ReduceOp op, SourceLine where) {
  const CallSite call(where);
  return do_all_reduce(std::move(t), op);
}

Future<Tensor> Communicator::reduce_scatter_async(Tensor&& t, ReduceOp op, int axis, SourceLine where) {
  const CallSite call(where);
  return do_reduce_scatter(std::move(t), op, axis);
}

Future<Tensor> Communicator::all_to_all_async(Tensor&& t, int split_axis, int concat_axis, SourceLine where) {
  const CallSite call(where);
  return do_all_to_all(std::move(t), split_axis, concat_axis);
}

Future<Tensor> Communicator::all_to_all_async(Tensor&& t, const std::vector<Index>& counts, int axis,
                                              SourceLine where) {
  const CallSite call(where);
  return do_all_to_all(std::move(t), counts, axis);
}

Future<Tensor> Communicator::broadcast_async(Tensor&& t, int root, SourceLine where) {
  const CallSite call(where);
  return do_broadcast(std::move(t), root);
}

void Communicator::synchronize(SourceLine where) {
  const CallSite call(where);
  do_synchronize();
}

std::vector<Index> Communicator::exchange(const char* what, Index mine, SourceLine where) {
  const CallSite call(where);
  return do_exchange(what, mine);
}

std::vector<std::string> Communicator::gather(const char* what, const std::string& mine, SourceLine where) {
  const CallSite call(where);
  return do_gather(what, mine, false);
}

std::vector<std::string> Communicator::gather_for_all(const char* what, const std::string& mine,
                                                      SourceLine where) {
  const CallSite call(where);
  return do_gather(what, mine, true);
}

void Communicator::verify_replicated(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  do_verify_replicated(t);
}

}  // namespace shard
