#pragma once

/// Gives a backend access to a tensor's memory.

#include "engine/device/books/ledger.hpp"
#include "engine/device/device.hpp"

namespace shard {

/// A block of the device's memory, booked in the ledger under its purpose. Each backend derives its own.
class Storage {
 public:
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Index bytes() const { return bytes_; }
  Purpose purpose() const { return purpose_; }
  void charge_to(Purpose purpose);

 protected:
  Storage(Index bytes, Purpose purpose);
  ~Storage();

 private:
  Index bytes_;
  Purpose purpose_;
};

class TensorMemory {
 public:
  /// \throws Error argument when an extent is negative.
  static Tensor make(Shape shape, Purpose purpose = Purpose::activations);
  /// A tensor on this memory; null for no elements.
  static Tensor on(Shape shape, std::shared_ptr<Storage> storage) {
    return Tensor(std::move(shape), std::move(storage));
  }
  /// A buffer of a collective in progress.
  static Tensor buffer(Index elements) { return make({elements}, Purpose::buffers); }
  /// A second tensor on the same memory, for a call in progress.
  static Tensor share(const Tensor& t) { return Tensor(t.shape_, t.storage_); }
  static bool overlap(const Tensor& a, const Tensor& b) { return a.storage_ && a.storage_ == b.storage_; }
  static Storage* storage(const Tensor& t) { return t.storage_.get(); }

  /// The address in the device's memory; null for no elements.
  static float* data(Tensor& t);
  static const float* data(const Tensor& t);
  /// The elements in the host's memory, for bodies that send them over the wire.
  static std::span<float> span(Tensor& t);
  static std::span<const float> span(const Tensor& t);
  static Purpose purpose(const Tensor& t);
};

}  // namespace shard
