#include "engine/checkpoints/saved_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "engine/basics/printable.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/safetensors.hpp"

namespace shard {

namespace {

/// The indices of a part, relative to the beginning of another part that contains it.
Ranges inside(const Ranges& part, const Ranges& other) {
  Ranges relative;
  for (std::size_t d = 0; d < part.size(); ++d)
    relative.push_back({part[d].begin - other[d].begin, part[d].end - other[d].begin});
  return relative;
}

/// The tensors of the files with this stem.
std::map<std::string, StoredParts> tensors_of(const Manifest& manifest, const std::string& stem) {
  std::map<std::string, StoredParts> tensors;
  for (const auto& [name, tensor] : manifest.tensors)
    if (!tensor.parts.empty() && tensor.parts[0].file.starts_with(stem + '-')) tensors[name] = tensor;
  return tensors;
}

/// Tensors in parts, each in the file of the device that wrote it.
class DistributedCheckpoint : public ListedCheckpoint {
 public:
  DistributedCheckpoint(const std::string& folder, std::map<std::string, StoredParts> tensors)
      : ListedCheckpoint(shapes_of(tensors), folder), tensors_(std::move(tensors)) {}

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    const Shape shape = shape_of(part);
    std::vector<float> all(static_cast<std::size_t>(num_elements(shape)));
    for (const auto& [file, ranges] : tensors_.at(name).parts) {
      const Ranges both = common(part, ranges);
      if (num_elements(shape_of(both)) == 0) continue;
      const std::vector<float> some = opened(file, name, ranges).read(name, inside(both, ranges));
      for_each_run(shape, inside(both, part), [&](Index in_all, Index in_some, Index length) {
        std::copy_n(some.begin() + in_some, length, all.begin() + in_all);
      });
    }
    return all;
  }

  const Checkpoint& opened(const std::string& file, const std::string& name, const Ranges& ranges) const {
    std::unique_ptr<Checkpoint>& open = files_[file];
    if (!open) open = open_checkpoint(source() + '/' + file);
    if (const Shape given = open->shape(name); given != shape_of(ranges))
      bad_file(open->source(), "tensor \"" + printable(name) + '"', to_string(shape_of(ranges)),
               to_string(given));
    return *open;
  }

  std::map<std::string, StoredParts> tensors_;
  mutable std::map<std::string, std::unique_ptr<Checkpoint>> files_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_saved(const std::string& folder, const Manifest& manifest,
                                       const std::string& stem) {
  if (manifest.format == "distributed")
    return std::make_unique<DistributedCheckpoint>(folder, tensors_of(manifest, stem));
  return open_stored(folder, stem);
}

void verify_digest(const std::string& folder, const std::string& file, const std::string& digest) {
  const std::string path = folder + '/' + file;
  if (const std::string given = digest_of_file(path); given != digest)
    bad_file(path, "damaged", "a digest of " + printable(digest, 40), given);
}

void say_not_verified(const std::string& folder, const Manifest& manifest) {
  if (manifest.digests.empty()) return;
  const std::size_t more = manifest.digests.size() - 1;
  fmt::print(stderr, "{}: not compared with {}: {}{}, since --no-verify leaves it out\n", one_line(folder),
             more > 0 ? "their digests" : "its digest", printable(manifest.digests.begin()->first),
             more > 0 ? fmt::format(" and {} more file{}", more, more == 1 ? "" : "s") : "");
}

void verify_digests(Communicator& group, const std::string& folder, const Manifest& manifest) {
  int file_number = 0;
  for (const auto& [file, digest] : manifest.digests) {
    if (file_number++ % group.num_devices() == group.device_id()) verify_digest(folder, file, digest);
  }
  group.barrier();
}

void save_training(ShardedEngine& engine, Optimizer& optimizer, const std::vector<std::string>& order,
                   const std::string& path, const SaveForm& form, const Records& records) {
  std::vector<SavedTensors> all = {{"model", engine.trainable(), order}};
  SavedTensors state{"optimizer", {}, {}};
  const std::vector<std::string> kept = optimizer.state_names();
  for (const Trainable& t : engine.trainable())
    for (std::size_t i = 0; i < kept.size(); ++i)
      state.held.push_back({t.name + '/' + kept[i], Rows(optimizer.state_of(t)[i]), t.whole, t.ranges});
  for (const std::string& name : order)
    for (const std::string& what : kept) state.order.push_back(name + '/' + what);
  if (!kept.empty()) all.push_back(std::move(state));
  save_checkpoint(engine.group(), path, form, all, records);
}

void load_training(ShardedEngine& engine, Optimizer& optimizer, const std::string& folder,
                   const Manifest& manifest) {
  engine.load_checkpoint(*open_saved(folder, manifest, "model"));
  const std::vector<std::string> kept = optimizer.state_names();
  optimizer.go_on_after(manifest.training ? manifest.training->step : 0);
  if (kept.empty()) return;
  const std::unique_ptr<Checkpoint> stored = open_saved(folder, manifest, "optimizer");
  for (const Trainable& t : engine.trainable()) {
    std::vector<Tensor>& state = optimizer.state_of(t);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      state[i] = stored->slices(t.name + '/' + kept[i], t.ranges);
      state[i].charge_to(Purpose::optimizer);
    }
  }
}

}  // namespace shard
