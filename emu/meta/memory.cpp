#include "emu/meta/memory.hpp"

#include <algorithm>

#include "engine/device/books/memory.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"
#include "engine/device/runtime/operations/axis_cuts.hpp"

namespace shard {

Storage::Storage(Index bytes, Purpose purpose) : bytes_(bytes), purpose_(purpose) {
  runtime::note_allocation(purpose_, bytes_);
}

Storage::~Storage() {
  runtime::note_release(purpose_, bytes_);
}

void Storage::charge_to(Purpose purpose) {
  runtime::note_move(purpose_, purpose, bytes_);
  purpose_ = purpose;
}

std::span<const float> meta::host_values(const Tensor& t) {
  const Storage* storage = TensorMemory::storage(t);
  return storage == nullptr ? std::span<const float>() : storage->from_host;
}

Purpose TensorMemory::purpose(const Tensor& t) {
  return storage(t) ? storage(t)->purpose() : Purpose::activations;
}

Tensor TensorMemory::make(Shape shape, Purpose purpose) {
  const Index bytes = bytes_of(shape);
  auto storage = bytes == 0 ? nullptr : std::make_shared<Storage>(bytes, purpose);
  return Tensor(std::move(shape), std::move(storage));
}

Tensor::Tensor(Shape shape, SourceLine where) : Tensor(uninitialized(std::move(shape), where)) {}

Tensor Tensor::uninitialized(Shape shape, SourceLine where) {
  const CallSite call(where);
  return TensorMemory::make(std::move(shape));
}

Tensor Tensor::from_host(Shape shape, std::span<const float> values, SourceLine where) {
  const CallSite call(where);
  Tensor t = TensorMemory::make(std::move(shape));
  require_values("from_host", t, values);
  if (t.storage_) t.storage_->from_host.assign(values.begin(), values.end());
  return t;
}

Tensor Tensor::clone() const {
  Tensor copy = TensorMemory::make(shape(), TensorMemory::purpose(*this));
  if (storage_) copy.storage_->from_host = storage_->from_host;
  return copy;
}

void Tensor::write(int axis, Index begin, Index end, std::span<const float> values, SourceLine where) {
  const CallSite call(where);
  require_count("write", "values", num_elements(shape_of_slice("write", *this, axis, begin, end)),
                static_cast<Index>(values.size()));
}

void Tensor::read(Index first, std::span<float> values, SourceLine where) const {
  const CallSite call(where);
  require_inside("read", *this, first, values);
  const std::span<const float> written = meta::host_values(*this);
  if (written.empty())
    std::ranges::fill(values, 0.0F);
  else
    std::copy_n(written.begin() + first, values.size(), values.begin());
}

std::vector<float> Tensor::to_host() const {
  std::vector<float> values(static_cast<std::size_t>(size()));
  read(0, values);
  return values;
}

Later<std::vector<float>> Tensor::to_host_later() const {
  return to_host();
}

void Tensor::charge_to(Purpose purpose) {
  if (storage_) storage_->charge_to(purpose);
}

Tensor slice(const Tensor& t, int axis, Index begin, Index end, SourceLine where) {
  const CallSite call(where);
  Tensor part = TensorMemory::make(shape_of_slice("slice", t, axis, begin, end));
  runtime::note_elementwise("slice", part.size());
  const std::span<const float> written = meta::host_values(t);
  if (written.empty() || part.size() == 0) return part;
  const Index inner = runtime::elements_after(t.shape(), axis), length = (end - begin) * inner;
  std::vector<float>& values = TensorMemory::storage(part)->from_host;
  for (Index row = 0; row < runtime::elements_before(t.shape(), axis); ++row) {
    const auto first = written.begin() + (row * t.extent(axis) + begin) * inner;
    values.insert(values.end(), first, first + length);
  }
  return part;
}

std::optional<Room> room_for_devices() {
  return std::nullopt;
}

bool tensors_have_elements() {
  return false;
}

}  // namespace shard
