#pragma once

#include "engine/device/device.hpp"

namespace shard {

/// A communicator that forwards every call to an inner one, which outlives it, or which it owns. Recorders,
/// planted faults, checked runs and clocks derive from it and override `call`.
class WrappedCommunicator : public Communicator {
 public:
  explicit WrappedCommunicator(Communicator& inner) : inner_(&inner) {}
  explicit WrappedCommunicator(std::unique_ptr<Communicator> inner)
      : inner_(inner.get()), owned_(std::move(inner)) {}

  int device_id() const override { return inner_->device_id(); }
  int num_devices() const override { return inner_->num_devices(); }
  const std::vector<int>& members() const override { return inner_->members(); }
  Index group_id() const override { return inner_->group_id(); }

  Future<CallResult> call(Request&& request) override {
    const bool is_split = request.function == Request::split;
    Future<CallResult> given = inner_->call(std::move(request));
    if (!is_split) return given;
    CallResult result = given.get();
    if (result.part != nullptr) result.part = wrap(std::move(result.part));
    return done(std::move(result));
  }

 protected:
  /// Without an inner communicator. Call set_inner before any other function.
  WrappedCommunicator() = default;
  Communicator& inner() { return *inner_; }
  /// All later calls go to this communicator.
  void set_inner(Communicator& inner) { inner_ = &inner; }
  /// Wraps a group that was split off the inner one; `split` returns the result.
  virtual std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) { return part; }

 private:
  Communicator* inner_ = nullptr;
  std::unique_ptr<Communicator> owned_;
};

}  // namespace shard
