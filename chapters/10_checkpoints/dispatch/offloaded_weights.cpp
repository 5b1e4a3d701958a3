#include "offloaded_weights.hpp"

#include "engine/device/error.hpp"
#include "engine/device/this_device.hpp"

namespace shard::dispatch {

std::size_t OffloadedWeights::add(std::vector<std::string> names, bool is_on_disk) {
  Weights on_host = is_on_disk ? Weights() : read(names);
  parts_.push_back({std::move(names), is_on_disk, std::move(on_host)});
  return parts_.size() - 1;
}

void OffloadedWeights::begin_pass(std::size_t part) {
  read_ahead(part);
}

void OffloadedWeights::bring_in(std::size_t part,
                                const std::function<void(const std::string&, const HostTensor&)>& put) {
  if (!parts_.at(part).is_on_disk) {
    for (const auto& [name, values] : parts_[part].on_host) put(name, values);
    return;
  }
  if (!ahead_.valid() || coming_ != part)
    refuse(Code::internal, "bring_in", "parts in their order", "part " + std::to_string(part));
  Weights weights = ahead_.get();
  while (!weights.empty()) {
    auto parameter = weights.extract(weights.begin());
    put(parameter.key(), parameter.mapped());
    std::vector<float>& values = parameter.mapped().values;
    spare_.emplace(static_cast<Index>(values.size()), std::move(values));
  }
  read_ahead(part + 1);
}

OffloadedWeights::Weights OffloadedWeights::read(const std::vector<std::string>& names) {
  Weights weights;
  for (const std::string& name : names) {
    HostTensor& tensor = weights[name] = {checkpoint_.shape(name), {}};
    if (auto spare = spare_.extract(num_elements(tensor.shape))) tensor.values = std::move(spare.mapped());
  }
  spare_.clear();
  for (auto& [name, tensor] : weights) {
    tensor.values.resize(static_cast<std::size_t>(num_elements(tensor.shape)));
    read(name, tensor);
  }
  return weights;
}

void OffloadedWeights::read(const std::string& name, HostTensor& into) const {
  checkpoint_.read_in_pieces(
      name, all_of(into.shape), [&](const Ranges& piece, std::span<const float> values) {
        for_each_run(into.shape, piece, [&](Index in_whole, Index in_piece, Index length) {
          std::copy_n(values.begin() + in_piece, length, into.values.begin() + in_whole);
        });
      });
}

void OffloadedWeights::read_ahead(std::size_t from) {
  for (coming_ = from; coming_ < parts_.size(); ++coming_)
    if (parts_[coming_].is_on_disk) break;
  ahead_ = {};
  if (coming_ == parts_.size()) return;
  ahead_ = std::async(std::launch::async, [this, part = coming_, id = this_device()] {
    Device of_thread(id);  // for messages of errors; the device's own thread goes on
    const Device::Scope scope(of_thread);
    return read(parts_[part].names);
  });
}

}  // namespace shard::dispatch
