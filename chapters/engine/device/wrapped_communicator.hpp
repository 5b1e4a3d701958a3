#pragma once

#include "engine/device/device.hpp"

namespace shard {

/// A communicator that passes every call on to another one, the inner one. Recorders, planted faults, checked
/// runs and clocks derive from it and override some calls. The inner communicator must outlive it.
class WrappedCommunicator : public Communicator {
 public:
  explicit WrappedCommunicator(Communicator& inner) : inner_(&inner) {}

  int device_id() const override { return inner_->device_id(); }
  int num_devices() const override { return inner_->num_devices(); }
  const std::vector<int>& members() const override { return inner_->members(); }
  Index group_id() const override { return inner_->group_id(); }

 protected:
  std::unique_ptr<Communicator> do_split(std::optional<Index> color, Index key) override {
    std::unique_ptr<Communicator> part = inner_->split(color, key);
    return part == nullptr ? nullptr : wrap(std::move(part));
  }

  void do_barrier() override { inner_->barrier(); }
  void do_send(int dest_id, const Tensor& t) override { inner_->send(dest_id, t); }
  Tensor do_receive(int src_id) override { return inner_->receive(src_id); }
  Future<> do_post_send(int dest_id, Tensor&& t) override { return inner_->post_send(dest_id, std::move(t)); }
  Future<Tensor> do_post_receive(int src_id, const Shape& shape) override {
    return inner_->post_receive(src_id, shape);
  }
  Future<> do_send_async(const Tensor& src, Tensor& dst, std::optional<int> target_device_id) override {
    return inner_->send_async(src, dst, target_device_id);
  }
  Future<Tensor> do_all_gather(Tensor&& slice, int axis, const std::optional<Shape>& whole) override {
    return inner_->all_gather_async(std::move(slice), axis, whole);
  }
  Future<Tensor> do_all_gather(const Tensor& slice, int axis, const std::optional<Shape>& whole) override {
    return inner_->all_gather_async(slice, axis, whole);
  }
  Future<Tensor> do_all_reduce(Tensor&& t, ReduceOp op) override {
    return inner_->all_reduce_async(std::move(t), op);
  }
  Future<Tensor> do_reduce_scatter(Tensor&& t, ReduceOp op, int axis) override {
    return inner_->reduce_scatter_async(std::move(t), op, axis);
  }
  Future<Tensor> do_all_to_all(Tensor&& t, int split_axis, int concat_axis) override {
    return inner_->all_to_all_async(std::move(t), split_axis, concat_axis);
  }
  Future<Tensor> do_all_to_all(Tensor&& t, const std::vector<Index>& counts, int axis) override {
    return inner_->all_to_all_async(std::move(t), counts, axis);
  }
  Future<Tensor> do_broadcast(Tensor&& t, int root) override {
    return inner_->broadcast_async(std::move(t), root);
  }
  void do_synchronize() override { inner_->synchronize(); }
  std::vector<Index> do_exchange(const char* what, Index mine) override {
    return inner_->exchange(what, mine);
  }
  std::vector<std::string> do_gather(const char* what, const std::string& mine, bool for_all) override {
    return for_all ? inner_->gather_for_all(what, mine) : inner_->gather(what, mine);
  }
  void do_verify_replicated(const Tensor& t) override { inner_->verify_replicated(t); }

  /// Has no inner communicator yet. Call set_inner before any other function.
  WrappedCommunicator() = default;
  Communicator& inner() { return *inner_; }
  /// Passes all later calls on to this communicator.
  void set_inner(Communicator& inner) { inner_ = &inner; }
  /// Wraps a part of the inner group as this communicator wraps the whole; `split` returns the result.
  virtual std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) = 0;

 private:
  Communicator* inner_ = nullptr;
};

}  // namespace shard
