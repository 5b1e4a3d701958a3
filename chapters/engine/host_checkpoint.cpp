#include "engine/host_checkpoint.hpp"

namespace shard {

namespace {

using namespace checkpoint;

class HostCheckpoint : public Checkpoint {
 public:
  HostCheckpoint(std::map<std::string, HostTensor> tensors, std::string source)
      : tensors_(std::move(tensors)), source_(std::move(source)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override {
    if (!contains(name)) refuse_unknown(source_, name);
    return tensors_.at(name).shape;
  }
  std::string source() const override { return source_; }

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    const HostTensor& whole = tensors_.at(name);
    std::vector<float> values;
    for_each_run(whole.shape, part, [&](Index first, Index, Index length) {
      const auto begin = whole.values.begin() + first;
      values.insert(values.end(), begin, begin + length);
    });
    return values;
  }

  std::map<std::string, HostTensor> tensors_;
  std::string source_;
};

}  // namespace

std::unique_ptr<Checkpoint> host_checkpoint(std::map<std::string, HostTensor> tensors, std::string source) {
  return std::make_unique<HostCheckpoint>(std::move(tensors), std::move(source));
}

}  // namespace shard
