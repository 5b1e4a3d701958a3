/// The functions of a tensor that need its memory: arguments are checked here, and the backend copies.

#include "engine/device/runtime/operations/tensor_memory.hpp"

#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/kernels.hpp"
#include "engine/device/this_device.hpp"

namespace shard {

Storage::Storage(Index bytes, Purpose purpose) : bytes_(bytes), purpose_(purpose) {
  runtime::note_allocation(this, purpose_, bytes_);
}

Storage::~Storage() {
  runtime::note_release(this, purpose_, bytes_);
}

void Storage::charge_to(Purpose purpose) {
  runtime::note_move(this, purpose_, purpose, bytes_);
  purpose_ = purpose;
}

Tensor TensorMemory::make(Shape shape, Purpose purpose) {
  const Index bytes = bytes_of(shape);
  return Tensor(std::move(shape), bytes == 0 ? nullptr : kernels::allocate(bytes, purpose));
}

Purpose TensorMemory::purpose(const Tensor& t) {
  return t.storage_ ? t.storage_->purpose() : Purpose::activations;
}

Tensor::Tensor(Shape shape, SourceLine where) : Tensor(uninitialized(std::move(shape), where)) {
  if (size() > 0) kernels::fill_with_zeros(*this);
}

Tensor Tensor::uninitialized(Shape shape, SourceLine where) {
  const CallSite call(where);
  Tensor t = TensorMemory::make(std::move(shape));
  // A record has the elements that nobody has written yet, too: the same ones in each run.
  if (device().is_observed && t.size() > 0) kernels::fill_with_zeros(t);
  return t;
}

Tensor Tensor::from_host(Shape shape, std::span<const float> values, SourceLine where) {
  const CallSite call(where);
  Tensor t = TensorMemory::make(std::move(shape));
  require_values("from_host", t, values);
  if (t.size() > 0) kernels::write_all(t, values);
  return t;
}

Tensor Tensor::clone() const {
  Tensor copy = TensorMemory::make(shape(), TensorMemory::purpose(*this));
  if (size() > 0) kernels::copy(*this, copy);
  return copy;
}

void Tensor::write(int axis, Index begin, Index end, std::span<const float> values, SourceLine where) {
  const CallSite call(where);
  require_count("write", "values", num_elements(shape_of_slice("write", *this, axis, begin, end)),
                std::ssize(values));
  if (!values.empty()) kernels::write(*this, axis, {begin, end}, values);
}

void Tensor::read(Index first, std::span<float> values, SourceLine where) const {
  const CallSite call(where);
  require_inside("read", *this, first, values);
  if (!values.empty()) kernels::read(*this, first, values);
}

std::vector<float> Tensor::to_host() const {
  std::vector<float> values(static_cast<std::size_t>(size()));
  read(0, values);
  return values;
}

Later<std::vector<float>> Tensor::to_host_later() const {
  if (size() == 0) return to_host();
  return kernels::read_later(*this);
}

void Tensor::charge_to(Purpose purpose) {
  if (storage_) storage_->charge_to(purpose);
}

}  // namespace shard
