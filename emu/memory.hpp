#pragma once

#include "engine/device.hpp"

namespace shard {

/// The emulator's storage: host memory, in the ledger under its purpose.
class Storage {
 public:
  Storage(Index bytes, Purpose purpose);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  float* data() { return data_; }
  Purpose purpose() const { return purpose_; }
  void charge_to(Purpose purpose);

 private:
  Index bytes_;
  Purpose purpose_;
  float* data_;
};

/// The door to a tensor's memory.
class Backend {
 public:
  static Tensor make(Shape shape, Purpose purpose = Purpose::activations);
  /// Memory of a collective in progress.
  static Tensor buffer(Index elements) { return make({elements}, Purpose::buffers); }
  /// A second tensor on the same memory: for a future that still needs it.
  static Tensor share(const Tensor& t) { return Tensor(t.shape_, t.storage_); }
  static bool overlap(const Tensor& a, const Tensor& b) { return a.storage_ && a.storage_ == b.storage_; }

  static float* data(Tensor& t) { return t.storage_ ? t.storage_->data() : nullptr; }
  static const float* data(const Tensor& t) { return t.storage_ ? t.storage_->data() : nullptr; }
  static std::span<float> span(Tensor& t) { return {data(t), static_cast<std::size_t>(t.size())}; }
  static std::span<const float> span(const Tensor& t) {
    return {data(t), static_cast<std::size_t>(t.size())};
  }
  static Purpose purpose(const Tensor& t) {
    return t.storage_ ? t.storage_->purpose() : Purpose::activations;
  }
};

}  // namespace shard
