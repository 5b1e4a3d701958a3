#include "engine/weights/host_checkpoint.hpp"

namespace shard {

namespace {

class HostCheckpoint : public ListedCheckpoint {
 public:
  HostCheckpoint(std::map<std::string, HostTensor> tensors, std::string source)
      : ListedCheckpoint(shapes_of(tensors), std::move(source)), tensors_(std::move(tensors)) {}

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
};

}  // namespace

std::unique_ptr<Checkpoint> host_checkpoint(std::map<std::string, HostTensor> tensors, std::string source) {
  return std::make_unique<HostCheckpoint>(std::move(tensors), std::move(source));
}

}  // namespace shard
